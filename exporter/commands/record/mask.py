"""Names and numbers that identify nobody, the same one each time for the same original.

Texts are masked word by word: what is not known to say nothing of anybody is replaced.
"""

import base64
import binascii
import re
from collections import defaultdict
from collections.abc import Iterable

from exporter.sharing import SYSTEMS

UUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
WORD = r"[^\W_]+"
PCI = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
# What is no name, or is one in another way: a UUID, a PCI address as every board of a model has it, a word.
PARTS = rf"(?P<uuid>{UUID.pattern})|(?P<pci>{PCI})|(?P<word>{WORD})"
# Numbers, and amounts and profiles with their units.
PLAIN = re.compile(r"[0-9]{1,13}|[0-9]{1,12}(?:[KMGTPE]i?|g|c|gb|GB|g[0-9]{1,4}gb|me|e[0-9]{0,2})")
NUMBERED = re.compile(r"([^\W\d_]+)[0-9]{0,4}")
BASE64 = re.compile(r"[A-Za-z0-9+/]{8,}={0,2}")
CONTAINER_ID_LENGTH, CONTAINER_ID_NUMBER = 64, 12
PUBLIC = frozenset({"true", "false", "null"}).union(*(system.words for system in SYSTEMS))
"""The words of all systems."""


class Mask:
    """Replaces names by numbered ones, in the order that they are met; ``on`` False leaves all as it is."""

    def __init__(self, on: bool = True) -> None:
        self._on = on
        self._numbers: dict[str, dict[str, int]] = defaultdict(dict)
        self._public = set(PUBLIC)

    def know(self, texts: Iterable[str]) -> None:
        """Take the words of these texts, such as models and resources, for no secrets."""
        self._public |= {word for text in texts for word in re.findall(WORD, text)}

    def name(self, kind: str, original: str) -> str:
        """Return ``<kind>-<n>``, a system's own name as it is; unmasked, the last part of the original."""
        if not self._on:
            return original.rpartition("/")[2]
        return original if original in PUBLIC else f"{kind}-{self._number(kind, original)}"

    def container(self, original: str) -> str:
        """Return another name of a container; one that says nothing may stand for itself in texts."""
        if self._says_nothing(original):
            return self.uuid(original)
        return self.name("container", original)

    def uid(self, original: str) -> str:
        """Return another pod uid, "" for none; also for a static pod's, which is 32 digits in a row."""
        return self._uuid(original) if original and self._on else original

    def uuid(self, original: str) -> str:
        """Replace the digits of a UUID, keeping a prefix such as ``GPU-`` and whatever follows them."""
        if not self._on:
            return original
        return UUID.sub(self._other_uuid, original)

    def device_id(self, original: str) -> str:
        """Mask the UUID within a device id; the replica, instance or minor in it stays.

        An id that names a device in a way unknown to us may say anything, and is replaced as a whole.
        """
        if not self._on:
            return original
        if self._says_nothing(original):
            return self.uuid(original)
        return f"device-{self._number('device', original)}"

    def text(self, original: str, names: Iterable[str] = (), node: str = "") -> str:
        """Mask whatever is in a text.

        ``names`` are containers, and ``node`` is the node, as they may be called in it.
        """
        if not self._on:
            return original
        inner = _decoded(original)
        if inner is not None:
            return base64.b64encode(self.text(inner, names, node).encode()).decode()
        others = {each: self.container(each) for each in names if not self._says_nothing(each)}
        if node and not self._says_nothing(node):
            others[node] = self.name("node", node)
        listed = "|".join(re.escape(each) for each in sorted(others, key=len, reverse=True))
        known = rf"(?<![^\W_])(?P<known>{listed})(?![^\W_])|" if others else ""

        def other(found: re.Match[str]) -> str:
            if found["uuid"] or found["pci"]:
                return self._uuid(found[0]) if found["uuid"] else found[0]
            return self._word(found[0]) if found["word"] else others[found[0]]

        return re.sub(f"{known}{PARTS}", other, original)

    def container_id(self, original: str) -> str:
        """Return another id of the same length; the first twelve digits tell a container from others."""
        if not self._on or not original:
            return original
        number = self._number("container_id", original[:CONTAINER_ID_NUMBER])
        return f"{number:0{CONTAINER_ID_NUMBER}x}".ljust(CONTAINER_ID_LENGTH, "0")[: len(original)]

    def serial(self, original: str | None) -> str | None:
        """Return a serial number of the same length, None for none."""
        if original is None or not self._on:
            return original
        return str(self._number("serial", original)).zfill(len(original))

    def _word(self, word: str) -> str:
        return word if self._says_nothing(word) else f"word{self._number('word', word)}"

    def _says_nothing(self, text: str) -> bool:
        """Whether a text has neither names nor words that could be part of one, UUIDs aside."""
        return all(self._is_public(found["word"]) for found in re.finditer(PARTS, text) if found["word"])

    def _is_public(self, word: str) -> bool:
        if word in self._public or PLAIN.fullmatch(word):
            return True
        numbered = NUMBERED.fullmatch(word)
        return numbered is not None and numbered[1] in self._public

    def _other_uuid(self, found: re.Match[str]) -> str:
        return self._uuid(found[0])

    def _uuid(self, original: str) -> str:
        return f"00000000-0000-4000-8000-{self._number('uuid', original.lower()):012x}"

    def _number(self, kind: str, original: str) -> int:
        numbers = self._numbers[kind]
        return numbers.setdefault(original, len(numbers) + 1)


def _decoded(text: str) -> str | None:
    """Return the JSON that stands in a text in base64, None where none does."""
    if not BASE64.fullmatch(text):
        return None
    try:
        found = base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    return found if found.lstrip()[:1] in {"{", "["} else None
