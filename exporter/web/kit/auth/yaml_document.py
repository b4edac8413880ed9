"""YAML configuration: sections with known keys, and errors with the key and its line."""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import NoReturn

import yaml

from exporter.config.parse import compose_yaml

_NULL = "tag:yaml.org,2002:null"
_BOOLEAN = "tag:yaml.org,2002:bool"
_TRUE = frozenset({"true", "yes", "on"})
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ns|us|µs|ms|h|m|s))+|0")
_NUMBER = re.compile(r"[0-9]{1,9}")
_PART = re.compile(r"([0-9.]+)([a-zµ]+)")
_HASH = re.compile(r"\$2[a-z]?\$\S*")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


class DocumentError(Exception):
    """An invalid file: the message has the key, its line in the file and what is allowed."""


class Section:
    """A mapping with known keys, each of which is taken once; ``place`` is its name in errors."""

    def __init__(self, node: yaml.Node | None, place: str = "") -> None:
        self._place = place
        self._nodes: dict[str, yaml.Node] = {}
        self._known: list[str] = []
        if node is None or node.tag == _NULL:
            return
        if not isinstance(node, yaml.MappingNode):
            _refuse(node, place, "this must be a mapping of keys to values")
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                _refuse(key, place, "a key must be plain text")
            if key.value in self._nodes:
                _refuse(key, self._named(key.value), "this key is repeated")
            self._nodes[key.value] = value

    def section(self, key: str) -> "Section":
        """Return a section, empty if it is missing."""
        return Section(self._take(key), self._named(key))

    def text(self, key: str) -> str:
        """Return plain text, "" if it is missing."""
        node = self._take(key)
        return "" if node is None else _scalar(node, self._named(key)).value

    def flag(self, key: str) -> bool:
        """Return true or false, true if it is missing."""
        node = self._take(key)
        if node is None:
            return True
        scalar = _scalar(node, self._named(key))
        if scalar.tag != _BOOLEAN:
            _refuse(node, self._named(key), "this must be true or false")
        return scalar.value.lower() in _TRUE

    def number(self, key: str) -> int:
        """Return a non-negative integer, 0 if it is missing."""
        return int(self._matching(key, _NUMBER, "a whole number, such as 20") or 0)

    def duration(self, key: str) -> float:
        """Return a duration in Go's format, in seconds; 0 if it is missing."""
        text = self._matching(key, _DURATION, "a duration with its unit, such as 100ms or 1s")
        return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))

    def _matching(self, key: str, pattern: re.Pattern[str], what: str) -> str:
        node = self._take(key)
        if node is None:
            return ""
        text: str = _scalar(node, self._named(key)).value
        if not pattern.fullmatch(text):
            _refuse(node, self._named(key), f"this must be {what}")
        return text

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of plain texts, empty if it is missing."""
        node = self._take(key)
        if node is None:
            return ()
        if not isinstance(node, yaml.SequenceNode):
            _refuse(node, self._named(key), "this must be a list")
        return tuple(_scalar(item, self._named(key)).value for item in node.value)

    def pairs(self) -> Mapping[str, str]:
        """Return all keys of this section with their plain texts."""
        return {name: self.text(name) for name in tuple(self._nodes)}

    def choice(self, key: str, known: Sequence[str], default: str) -> str:
        """Return one of the known texts, the default if it is missing."""
        node = self._nodes.get(key)
        text = self.text(key)
        if node is not None and text and text not in known:
            _refuse(node, self._named(key), f"{curtailed(text)!r} is not one of {', '.join(known)}")
        return text or default

    def choices(self, key: str, known: Sequence[str]) -> tuple[str, ...]:
        """Return a list of known texts, empty if it is missing."""
        node = self._nodes.get(key)
        texts = self.texts(key)
        unknown = next((text for text in texts if text not in known), None)
        if node is not None and unknown is not None:
            _refuse(node, self._named(key), f"{curtailed(unknown)!r} is not one of {', '.join(known)}")
        return texts

    def end(self) -> None:
        """Raise DocumentError if a key was not taken."""
        for key, node in self._nodes.items():
            near = get_close_matches(key, self._known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(self._known)}"
            _refuse(node, self._named(key), f"there is no such key; {hint}")

    def fail(self, key: str, why: str) -> NoReturn:
        """Raise DocumentError about a key."""
        raise DocumentError(f"{self._named(key)}: {why}")

    def _take(self, key: str) -> yaml.Node | None:
        self._known.append(key)
        node = self._nodes.pop(key, None)
        return None if node is None or node.tag == _NULL else node

    def _named(self, key: str) -> str:
        short = curtailed(key)
        name = short if short.isprintable() and short else repr(short)
        return f"{self._place}.{name}" if self._place else name


def read_document(content: bytes) -> Section:
    """Return the outermost section of YAML; raises DocumentError."""
    try:
        root = compose_yaml(content)
    except ValueError as error:
        raise DocumentError(str(error)) from None
    return Section(root)


def curtailed(text: str) -> str:
    """Return the start of a text for an error, without password hashes."""
    return _HASH.sub("$2…", text)[:60]


def _scalar(node: yaml.Node, place: str) -> yaml.ScalarNode:
    if not isinstance(node, yaml.ScalarNode):
        _refuse(node, place, "this must be plain text")
    return node


def _refuse(node: yaml.Node, place: str, why: str) -> NoReturn:
    raise DocumentError(f"{place or 'the file'} (line {node.start_mark.line + 1}): {why}")
