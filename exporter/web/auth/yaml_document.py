"""YAML for configuration: sections with known keys, and errors that name the key and its line."""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import NoReturn

import yaml

_NULL = "tag:yaml.org,2002:null"
_BOOLEAN = "tag:yaml.org,2002:bool"
_TRUE = frozenset({"true", "yes", "on"})
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ns|us|µs|ms|h|m|s))+|0")
_PART = re.compile(r"([0-9.]+)([a-zµ]+)")
_HASH = re.compile(r"\$2[a-z]?\$\S*")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


class DocumentError(Exception):
    """What cannot be used: one line with the key, its line in the file and what is allowed."""


class Section:
    """A mapping with known keys; ``place`` is how it is named in errors. What is taken is taken once."""

    def __init__(self, node: yaml.Node | None, place: str = "") -> None:
        self._place = place
        self._nodes: dict[str, yaml.Node] = {}
        self._known: list[str] = []
        if node is None or node.tag == _NULL:
            return
        if not isinstance(node, yaml.MappingNode):
            _refuse(node, place, "a mapping of keys to values is needed here")
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                _refuse(key, place, "a key must be plain text")
            if key.value in self._nodes:
                _refuse(key, self._named(key.value), "the key is given twice")
            self._nodes[key.value] = value

    def section(self, key: str) -> "Section":
        """Take a section, which has no keys where there is none."""
        return Section(self._take(key), self._named(key))

    def text(self, key: str) -> str:
        """Take plain text; nothing where there is none."""
        node = self._take(key)
        return "" if node is None else _scalar(node, self._named(key)).value

    def flag(self, key: str, default: bool) -> bool:
        """Take true or false."""
        node = self._take(key)
        if node is None:
            return default
        scalar = _scalar(node, self._named(key))
        if scalar.tag != _BOOLEAN:
            _refuse(node, self._named(key), "true or false is needed here")
        return scalar.value.lower() in _TRUE

    def number(self, key: str) -> int:
        """Take a whole number from 0 on; 0 where there is none."""
        node = self._take(key)
        if node is None:
            return 0
        text = _scalar(node, self._named(key)).value
        if not re.fullmatch(r"[0-9]{1,9}", text):
            _refuse(node, self._named(key), "a whole number is needed here, such as 20")
        return int(text)

    def duration(self, key: str) -> float:
        """Take a duration as Go writes it, in seconds; 0 where there is none."""
        node = self._take(key)
        if node is None:
            return 0.0
        text = _scalar(node, self._named(key)).value
        if not _DURATION.fullmatch(text):
            _refuse(node, self._named(key), "a duration with its unit is needed here, such as 100ms or 1s")
        return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))

    def texts(self, key: str) -> tuple[str, ...]:
        """Take a list of plain texts; none where there is none."""
        node = self._take(key)
        if node is None:
            return ()
        if not isinstance(node, yaml.SequenceNode):
            _refuse(node, self._named(key), "a list is needed here")
        return tuple(_scalar(item, self._named(key)).value for item in node.value)

    def pairs(self) -> Mapping[str, str]:
        """Take all keys of this section with their plain texts."""
        names = tuple(self._nodes)
        return {name: self.text(name) for name in names}

    def choice(self, key: str, known: Sequence[str], default: str) -> str:
        """Take one of the known texts."""
        node = self._nodes.get(key)
        text = self.text(key)
        if node is not None and text and text not in known:
            _refuse(node, self._named(key), f"{curtailed(text)!r} is none of {', '.join(known)}")
        return text or default

    def choices(self, key: str, known: Sequence[str]) -> tuple[str, ...]:
        """Take a list of the known texts."""
        node = self._nodes.get(key)
        found = self.texts(key)
        for text in found:
            if node is not None and text not in known:
                _refuse(node, self._named(key), f"{curtailed(text)!r} is none of {', '.join(known)}")
        return found

    def end(self) -> None:
        """Refuse what nobody took."""
        for key, node in self._nodes.items():
            near = get_close_matches(key, self._known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(self._known)}"
            _refuse(node, self._named(key), f"there is no such key; {hint}")

    def fail(self, key: str, why: str) -> NoReturn:
        """Refuse the value of a key."""
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
    """Read YAML as its outermost section; raises DocumentError."""
    try:
        return Section(yaml.compose(content, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise DocumentError(f"not valid YAML: {line}{error.problem}") from None
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError) as error:
        raise DocumentError(f"not valid YAML: {' '.join(str(error).split())}") from None


def curtailed(text: str) -> str:
    """Give no more of a text than is needed to find it, and no hash of a password in a wrong place."""
    return _HASH.sub("$2…", text)[:60]


def _scalar(node: yaml.Node, place: str) -> yaml.ScalarNode:
    if not isinstance(node, yaml.ScalarNode):
        _refuse(node, place, "plain text is needed here")
    return node


def _refuse(node: yaml.Node, place: str, why: str) -> NoReturn:
    raise DocumentError(f"{place or 'the file'} (line {node.start_mark.line + 1}): {why}")
