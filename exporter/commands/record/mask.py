"""Replaces identifying names and numbers, each original always by the same replacement.

Texts are masked word by word. Numbers stay, and so do the words that the code of the sharing systems has: it
compares texts with them.
"""

import ast
import base64
import binascii
import re
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from exporter import sharing

UUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
WORD = r"[^\W_]+"
PCI = (
    r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
    # Of Intel's DRA driver, with the model.
    r"|[0-9a-f]{4}-[0-9a-f]{2}-[0-9a-f]{2}-[0-7]-0x[0-9a-f]{4}"
)
# The parts of a text: UUIDs, PCI addresses (not identifying: they are equal on equal machines), and words.
PARTS = rf"(?P<uuid>{UUID.pattern})|(?P<pci>{PCI})|(?P<word>{WORD})"
# Numbers, and amounts and profiles with their units.
PLAIN = re.compile(r"[0-9]{1,13}|[0-9]{1,12}(?:[KMGTPE]i?|g|c|gb|GB|g[0-9]{1,4}gb|me|e[0-9]{0,2})")
NUMBERED = re.compile(r"([^\W\d_]+)[0-9]{0,4}")
BASE64 = re.compile(r"[A-Za-z0-9+/]{8,}={0,2}")
CONTAINER_ID_LENGTH, CONTAINER_ID_NUMBER = 64, 12


@cache
def constants() -> frozenset[str]:
    """Return the texts in the code of the sharing systems, such as keys, without sentences."""
    files = Path(sharing.__file__).parent.rglob("*.py")
    nodes = (node for file in files for node in ast.walk(ast.parse(file.read_text("utf-8"))))
    texts = (node.value for node in nodes if isinstance(node, ast.Constant))
    return frozenset(text for text in texts if isinstance(text, str) and " " not in text)


class Mask:
    """Replaces names by numbered ones, in order of appearance; with ``on`` False it replaces nothing."""

    def __init__(self, on: bool = True) -> None:
        self._on = on
        self._numbers: dict[str, dict[str, int]] = defaultdict(dict)
        # Without the letters of patterns.
        words = {word for text in constants() for word in re.findall(WORD, text) if len(word) > 1}
        self._public = {"true", "false", "null", *words}
        # The systems' own namespaces and containers. A single word may be anybody's name.
        self._public_names = {text for text in constants() if "-" in text}

    def allow(self, texts: Iterable[str]) -> None:
        """Do not mask the words of these texts, such as models and resources."""
        self._public |= {word for text in texts for word in re.findall(WORD, text)}

    def name(self, kind: str, original: str) -> str:
        """Return ``<kind>-<n>``, or a system's own name as it is; unmasked, the last part of the original."""
        if not self._on:
            return original.rpartition("/")[2]
        return original if original in self._public_names else f"{kind}-{self._number(kind, original)}"

    def container(self, original: str) -> str:
        """Return the masked name of a container; a public name stays, as in texts."""
        return self.uuid(original) if self._is_public(original) else self.name("container", original)

    def uid(self, original: str) -> str:
        """Return the masked uid of a pod, "" for none; a static pod's uid, 32 digits without dashes, too."""
        return self._uuid(original) if original and self._on else original

    def uuid(self, original: str) -> str:
        """Return a text with its UUIDs masked; a prefix such as ``GPU-`` and a suffix stay."""
        return UUID.sub(lambda match: self._uuid(match[0]), original) if self._on else original

    def text(self, original: str, names: Iterable[str] = (), node: str = "") -> str:
        """Return a text with all words masked that are not public.

        ``names`` of containers and the name of the ``node`` get their own masked names.
        """
        if not self._on:
            return original
        inner = _decoded(original)
        if inner is not None:
            return base64.b64encode(self.text(inner, names, node).encode()).decode()
        masked = {name: self.container(name) for name in names if not self._is_public(name)}
        if node and not self._is_public(node):
            masked[node] = self.name("node", node)
        listed = "|".join(re.escape(name) for name in sorted(masked, key=len, reverse=True))
        known = rf"(?<![^\W_])(?P<known>{listed})(?![^\W_])|" if masked else ""

        def replacement(match: re.Match[str]) -> str:
            if match["uuid"] or match["pci"]:
                return self._uuid(match[0]) if match["uuid"] else match[0]
            if not match["word"]:
                return masked[match[0]]
            return match[0] if self._is_public(match[0]) else f"word{self._number('word', match[0])}"

        return re.sub(f"{known}{PARTS}", replacement, original)

    def container_id(self, original: str) -> str:
        """Return a masked id of the same length; the first twelve digits identify a container."""
        if not self._on or not original:
            return original
        number = self._number("container_id", original[:CONTAINER_ID_NUMBER])
        return f"{number:0{CONTAINER_ID_NUMBER}x}".ljust(CONTAINER_ID_LENGTH, "0")[: len(original)]

    def serial(self, original: str | None) -> str | None:
        """Return a masked serial number of the same length, None for none."""
        if original is None or not self._on:
            return original
        return str(self._number("serial", original)).zfill(len(original))

    def _is_public(self, text: str) -> bool:
        """Return whether all words of a text are public; UUIDs do not count."""
        words = (match["word"] for match in re.finditer(PARTS, text))
        return all(self._is_public_word(word) for word in words if word)

    def _is_public_word(self, word: str) -> bool:
        if word in self._public or PLAIN.fullmatch(word):
            return True
        numbered = NUMBERED.fullmatch(word)
        return numbered is not None and numbered[1] in self._public

    def _uuid(self, original: str) -> str:
        return f"00000000-0000-4000-8000-{self._number('uuid', original.lower()):012x}"

    def _number(self, kind: str, original: str) -> int:
        numbers = self._numbers[kind]
        return numbers.setdefault(original, len(numbers) + 1)


def _decoded(text: str) -> str | None:
    """Return the JSON in a base64 text, None if it is not one."""
    if not BASE64.fullmatch(text):
        return None
    try:
        inner = base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    return inner if inner.lstrip()[:1] in {"{", "["} else None
