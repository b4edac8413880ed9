"""Selectors of devices, parsed: the simple part of CEL, as a tree.

What is not in ``parse`` is not guessed: NotSimpleError. Language: https://github.com/google/cel-spec/blob/master/doc/langdef.md;
its use for devices: https://kubernetes.io/docs/reference/using-api/cel/#cel-options-language-features-and-libraries
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias

LONGEST: Final = 10 << 10  # bytes that the API server accepts
_DEEPEST: Final = 50
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<int>[0-9]{1,18})(?![0-9A-Za-z_.])|(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?![\"'])"
    r"|(?P<text>\"[^\"\\\n]*\"|'[^'\\\n]*')(?![\"'])|(?P<mark>&&|\|\||[=!<>]=|[<>!()\[\].,-])|(?P<end>$))"
)
_RELATIONS: Final = frozenset({"==", "!=", "<", "<=", ">", ">=", "in"})
_FUNCTIONS: Final = frozenset({"quantity", "semver"})
METHODS: Final = {
    "startsWith": 1,
    "endsWith": 1,
    "contains": 1,
    "lowerAscii": 0,
    "upperAscii": 0,
    "compareTo": 1,
    "isGreaterThan": 1,
    "isLessThan": 1,
}
"""Methods, and the number of their arguments."""


class NotSimpleError(Exception):
    """The expression has something that is not evaluated here."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A text, whole number or truth value."""

    value: str | int | bool


@dataclass(frozen=True, slots=True)
class Driver:
    """``device.driver``."""


@dataclass(frozen=True, slots=True)
class Domain:
    """``device.attributes["domain"]`` or ``device.capacity["domain"]``: values by name."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Value:
    """One value of a domain."""

    domain: Domain
    name: str


@dataclass(frozen=True, slots=True)
class Items:
    """A list in brackets."""

    items: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Call:
    """An operator, function or method; the receiver of a method is its first argument."""

    name: str
    arguments: tuple["Node", ...]


Node: TypeAlias = Literal | Driver | Domain | Value | Items | Call


@lru_cache(maxsize=1024)
def parse(expression: str) -> Node:
    """Return the tree of an expression; raises NotSimpleError with the reason."""
    if len(expression) > LONGEST:
        raise NotSimpleError(f"an expression of {len(expression)} characters")
    parser = _Parser(list(_tokens(expression)))
    tree = parser.either()
    parser.expect("")
    return tree


def _tokens(expression: str) -> Iterator[tuple[str, str]]:
    place = 0
    while True:
        match = _TOKEN.match(expression, place)
        if match is None or match.lastgroup is None:
            raise NotSimpleError(f"at {expression[place : place + 20].strip()!r}")
        yield match.lastgroup, match[match.lastgroup]
        if match.lastgroup == "end":
            return
        place = match.end()


@dataclass(slots=True)
class _Parser:
    """A recursive descent: || binds least, then &&, relations, ! and members."""

    tokens: list[tuple[str, str]]
    place: int = 0
    depth: int = field(default=0)

    def either(self) -> Node:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise NotSimpleError("too many brackets")
        tree = self._both()
        while self._taken("||"):
            tree = Call("||", (tree, self._both()))
        self.depth -= 1
        return tree

    def expect(self, mark: str) -> None:
        kind, text = self.tokens[self.place]
        if text != mark or kind == "text":
            raise NotSimpleError(f"at {text!r}")
        self.place += kind != "end"

    def _taken(self, mark: str) -> bool:
        found = self.tokens[self.place] in {("mark", mark), ("name", mark)}
        self.place += found
        return found

    def _both(self) -> Node:
        tree = self._relation()
        while self._taken("&&"):
            tree = Call("&&", (tree, self._relation()))
        return tree

    def _relation(self) -> Node:
        tree = self._not()
        while (sign := self.tokens[self.place])[1] in _RELATIONS and sign[0] != "text":
            self.place += 1
            tree = Call(sign[1], (tree, self._not()))
        return tree

    def _not(self) -> Node:
        times = 0
        while self._taken("!"):
            times += 1
        tree = self._member()
        for _ in range(min(times, 2 + times % 2)):
            tree = Call("!", (tree,))
        return tree

    def _member(self) -> Node:
        tree = self._primary()
        while True:
            if self._taken("."):
                tree = self._select(tree, self._word("name"))
            elif isinstance(tree, Domain) and self._taken("["):
                tree = Value(tree, self._word("text")[1:-1])
                self.expect("]")
            else:
                return tree

    def _select(self, tree: Node, name: str) -> Node:
        if isinstance(tree, Domain):
            return Value(tree, name)
        if name not in METHODS:
            raise NotSimpleError(f"at .{name}")
        self.expect("(")
        arguments = self._list(")")
        if len(arguments) != METHODS[name]:
            raise NotSimpleError(f"at .{name}")
        return Call(name, (tree, *arguments))

    def _primary(self) -> Node:
        if self._taken("("):
            tree = self.either()
            self.expect(")")
            return tree
        if self._taken("["):
            return Items(self._list("]"))
        if self._taken("-"):
            return Literal(-int(self._word("int")))
        return self._atom()

    def _atom(self) -> Node:
        kind, text = self.tokens[self.place]
        self.place += kind != "end"
        match kind, text:
            case "int", _:
                return Literal(int(text))
            case "text", _:
                return Literal(text[1:-1])
            case "name", ("true" | "false"):
                return Literal(text == "true")
            case "name", "device":
                return self._device()
            case "name", "has":
                return self._has()
            case "name", _ if text in _FUNCTIONS:
                self.expect("(")
                return Call(text, self._one())
        raise NotSimpleError(f"at {text!r}")

    def _device(self) -> Node:
        self.expect(".")
        name = self._word("name")
        if name == "driver":
            return Driver()
        if name not in {"attributes", "capacity"}:
            raise NotSimpleError(f"at device.{name}")
        self.expect("[")
        domain = Domain(name, self._word("text")[1:-1])
        self.expect("]")
        return domain

    def _has(self) -> Node:
        self.expect("(")
        (tree,) = self._one()
        if not isinstance(tree, Value):
            raise NotSimpleError("at has()")
        return Call("in", (Literal(tree.name), tree.domain))

    def _one(self) -> tuple[Node]:
        tree = self.either()
        self.expect(")")
        return (tree,)

    def _list(self, end: str) -> tuple[Node, ...]:
        items: list[Node] = []
        while not self._taken(end):
            if items:
                self.expect(",")
            items.append(self.either())
        return tuple(items)

    def _word(self, kind: str) -> str:
        found, text = self.tokens[self.place]
        if found != kind:
            raise NotSimpleError(f"at {text!r}")
        self.place += 1
        return text
