"""YAML and JSON as trees of scalars with their places in the file, which are changed there.

Comments, order, anchors, quotes and indentation stay as they are. Templates of Helm that are no YAML are
read over.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import yaml

from exporter.translate.actions import without_actions
from exporter.translate.scalars import Text, text_of

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_JSON_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


class UnreadableFileError(Exception):
    """A text is neither YAML nor JSON; the message has the place."""


@dataclass(eq=False)
class Scalar:
    """A scalar: a string, a number or the like."""

    value: str
    start: int
    end: int
    # "json", or as YAML has it: a quote, "|", ">", "" for a plain scalar.
    style: str
    source: str = field(repr=False)

    @cached_property
    def text(self) -> Text | None:
        """Return its characters with their places; None if the places are unknown."""
        return text_of(self.source, self.start, self.end, self.style, self.value)


@dataclass(eq=False)
class Mapping:
    """A mapping in the order of the file; a key may appear twice."""

    pairs: list[tuple["Node", "Node"]]
    start: int

    def get(self, key: str) -> "Node | None":
        """Return the value of a key, the last if there are several."""
        found = [value for name, value in self.pairs if isinstance(name, Scalar) and name.value == key]
        return found[-1] if found else None

    def scalar(self, key: str) -> Scalar | None:
        """Return the value of a key if it is a scalar."""
        found = self.get(key)
        return found if isinstance(found, Scalar) else None

    def word(self, key: str) -> str:
        """Return the text of a key's value, "" without it."""
        found = self.scalar(key)
        return found.value if found else ""

    def mappings(self, key: str) -> list["Mapping"]:
        """Return the mappings in the list of a key."""
        found = self.get(key)
        items = found.items if isinstance(found, Sequence) else []
        return [item for item in items if isinstance(item, Mapping)]


@dataclass(eq=False)
class Sequence:
    """A list."""

    items: list["Node"]
    start: int


Node: TypeAlias = Scalar | Mapping | Sequence


def read(text: str) -> list[Node]:
    """Return the documents of a file; raises UnreadableFileError."""
    try:
        return _json(text) if text.lstrip()[:1] in ("{", "[") else _yaml(text)
    except RecursionError:
        raise UnreadableFileError("it is nested too deeply") from None


def _json(text: str) -> list[Node]:
    try:
        json.loads(text)
    except ValueError as error:
        # YAML may begin with a bracket, too.
        try:
            return _yaml(text)
        except UnreadableFileError:
            raise UnreadableFileError(f"not JSON: {error}") from None
    return [_Json(text).node()]


def scalars(node: Node) -> Iterator[Scalar]:
    """Yield all scalars of a tree once, keys too."""
    seen: set[int] = set()
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, Scalar):
            yield one
        elif isinstance(one, Mapping):
            waiting += [part for pair in reversed(one.pairs) for part in reversed(pair)]
        else:
            waiting += reversed(one.items)


def _yaml(text: str) -> list[Node]:
    try:
        return _composed(text, text)
    except yaml.YAMLError as error:
        if "{{" not in text:
            raise UnreadableFileError(f"not YAML: {_place(error)}") from None
    try:
        return _composed(without_actions(text), text)
    except yaml.YAMLError as error:
        raise UnreadableFileError(f"not YAML, also without the templates of Helm: {_place(error)}") from None


def _composed(readable: str, text: str) -> list[Node]:
    made: dict[int, Node] = {}
    # All of them at once: nodes are identified by their addresses.
    composed = list(yaml.compose_all(readable, Loader=_LOADER))
    roots = [_converted(root, readable, made) for root in composed if root is not None]
    for scalar in [*made.values()] if readable is not text else ():
        if isinstance(scalar, Scalar) and scalar.text is not None:
            scalar.text = scalar.text.of(text)
            scalar.value = scalar.text.value
    return roots


def _converted(node: yaml.Node, text: str, made: dict[int, Node]) -> Node:
    """Return our node of one of YAML's; the same for all aliases of an anchor."""
    if id(node) in made:
        return made[id(node)]
    start = node.start_mark.index
    if isinstance(node, yaml.MappingNode):
        mapping = made[id(node)] = Mapping([], start)
        mapping.pairs += [(_converted(k, text, made), _converted(v, text, made)) for k, v in node.value]
        return mapping
    if isinstance(node, yaml.SequenceNode):
        sequence = made[id(node)] = Sequence([], start)
        sequence.items += [_converted(item, text, made) for item in node.value]
        return sequence
    style = getattr(node, "style", "") or ""
    scalar = made[id(node)] = Scalar(node.value, start, node.end_mark.index, style, text)
    return scalar


def _place(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else problem


class _Json:
    """Goes through a text that is JSON."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def node(self) -> Node:
        self._space()
        start = self._at
        match self._text[start]:
            case "{":
                pairs = []
                for _ in self._items("}"):
                    key = self.node()
                    self._space()
                    self._at += 1
                    pairs.append((key, self.node()))
                return Mapping(pairs, start)
            case "[":
                return Sequence([self.node() for _ in self._items("]")], start)
            case '"':
                value, self._at = _DECODER.raw_decode(self._text, start)
                return Scalar(value, start, self._at, "json", self._text)
        _, self._at = _DECODER.raw_decode(self._text, start)
        return Scalar(self._text[start : self._at], start, self._at, "", self._text)

    def _items(self, closing: str) -> Iterator[None]:
        self._at += 1
        self._space()
        while self._text[self._at] != closing:
            yield None
            self._space()
            if self._text[self._at] == ",":
                self._at += 1
                self._space()
        self._at += 1

    def _space(self) -> None:
        found = _JSON_SPACE.match(self._text, self._at)
        self._at = found.end() if found else self._at
