"""The tree of a PromQL expression with positions: the parser's tree, laid over the words of the text."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import promql_parser
from promql_parser import ValueType

from exporter.translate.names import UntranslatableError
from exporter.translate.tokens import VARIABLE, Token, tokens

Kind: TypeAlias = Literal[
    "number", "string", "selector", "range", "subquery", "call", "aggregate", "binary", "unary", "paren"
]
GROUPINGS: Final = ("by", "without", "on", "ignoring", "group_left", "group_right")
_MATCHING: Final = ("=", "!=", "=~", "!~")
# Names that stand for variables while the expression is parsed.
_METRIC, _DURATION, _NUMBER = "placeholder", "5m", "1"
_FUNCTIONS = ("sum", "last_over_time")
_MOST_CHOICES = 6

# Still there in Prometheus 2, under its old name.
promql_parser.register_extra_functions(
    [
        promql_parser.Function(
            "holt_winters", [ValueType.Matrix, ValueType.Scalar, ValueType.Scalar], ValueType.Vector
        )
    ]
)


class Matcher(NamedTuple):
    """A matcher of a selector."""

    label: Token | None  # None for a name in quotes
    operator: str
    value: Token


@dataclass(slots=True, eq=False)
class Node:
    """A part of an expression."""

    kind: Kind
    start: int
    end: int = 0
    # The function or the operator; the number; the name of the metric.
    name: str = ""
    parts: list["Node"] = field(default_factory=list)
    # Labels by the keyword of their list.
    groups: dict[str, list[Token]] = field(default_factory=dict)
    # Of a selector.
    metric: Token | None = None
    matchers: list[Matcher] = field(default_factory=list)
    # Where further matchers can be put, and whether there are braces.
    brace: int = 0
    braces: bool = False
    # Of a string.
    token: Token | None = None
    # Whether a comparison returns 0 or 1.
    returns_bool: bool = False

    def walk(self) -> Iterator["Node"]:
        """Yield this part and all parts of it."""
        yield self
        for part in self.parts:
            yield from part.walk()


def tree(text: str) -> Node:
    """Return the tree of an expression; raises UntranslatableError or RecursionError."""
    words = tokens(text)
    return _Locator(words).located(_parsed(words))


def _parsed(words: Sequence[Token]) -> promql_parser.Expr:
    """Return the parser's tree of the expression with placeholders in place of its variables."""
    choices = [list(_stand_ins(words, place)) for place in range(len(words))]
    if sum(len(each) > 1 for each in choices) > _MOST_CHOICES:
        raise UntranslatableError(f"the expression has more than {_MOST_CHOICES} variables")
    first = ""
    for chosen in product(*choices):
        try:
            return promql_parser.parse(" ".join(chosen))
        except BaseException as error:  # its panics are no Exception
            if not isinstance(error, ValueError) and type(error).__name__ != "PanicException":
                raise
            first = first or str(error)
    raise UntranslatableError(f"the expression cannot be parsed: {first}")


def _stand_ins(words: Sequence[Token], place: int) -> Iterator[str]:
    """Yield what may stand for a word: itself, or placeholders for a variable."""
    token = words[place]
    if not token.has_variable:
        yield token.text
        return
    before = [word.word for word in words[max(place - 2, 0) : place]]
    after = words[place + 1].word if place + 1 < len(words) else ""
    if token.kind == "range":
        parts = VARIABLE.sub("\0", token.text[1:-1]).split(":")
        yield f"[{':'.join(_DURATION if chr(0) in part else part for part in parts)}]"
    elif before[-1:] == ["offset"] or before == ["offset", "-"]:
        yield _DURATION
    elif before[-1:] == ["@"]:
        yield _NUMBER
    elif (opened := _opened(words, place)) == "{":
        yield _METRIC if after in _MATCHING else f'{_METRIC}="x"'
    elif opened in GROUPINGS:
        yield _METRIC
    elif after == "(" or after in ("by", "without"):
        yield from _FUNCTIONS
    elif token.kind == "variable" and after != "{" and not after.startswith("["):
        yield from (_NUMBER, _METRIC)
    else:
        yield _METRIC


def _opened(words: Sequence[Token], place: int) -> str:
    """Return ``{`` in braces, the keyword in a list of labels, "" elsewhere."""
    depth = 0
    for number in range(place - 1, -1, -1):
        depth += (words[number].text in ("}", ")")) - (words[number].text in ("{", "("))
        if depth < 0:
            return "{" if words[number].text == "{" else words[number - 1].word if number else ""
    return ""


class _Locator:
    """Goes through the words of an expression as its tree demands."""

    def __init__(self, words: Sequence[Token]) -> None:
        self._words = words
        self._at = 0

    def located(self, expr: promql_parser.Expr) -> Node:
        """Return the tree with positions."""
        node = self._node(expr)
        if self._at != len(self._words):
            raise self._unexpected()
        return node

    def _node(self, expr: promql_parser.Expr) -> Node:
        signs = ("+", "-") if isinstance(expr, promql_parser.NumberLiteral) else ("+",)
        node = Node("number", self._peek().start)
        while self._peek().text in signs:
            node.name += self._take().text
        reads: Mapping[type, Callable[[Node, Any], None]] = {
            promql_parser.NumberLiteral: self._number,
            promql_parser.StringLiteral: self._string,
            promql_parser.ParenExpr: self._paren,
            promql_parser.UnaryExpr: self._unary,
            promql_parser.VectorSelector: self._selector,
            promql_parser.MatrixSelector: self._matrix,
            promql_parser.SubqueryExpr: self._subquery,
            promql_parser.Call: self._call,
            promql_parser.AggregateExpr: self._aggregate,
            promql_parser.BinaryExpr: self._binary,
        }
        reads[type(expr)](node, expr)
        node.end = self._words[self._at - 1].end
        return node

    def _number(self, node: Node, _expr: promql_parser.NumberLiteral) -> None:
        node.name += self._take().text

    def _string(self, node: Node, _expr: promql_parser.StringLiteral) -> None:
        node.kind, node.token = "string", self._take()

    def _paren(self, node: Node, expr: promql_parser.ParenExpr) -> None:
        node.kind = "paren"
        self._parenthesized(node, [expr.expr])

    def _unary(self, node: Node, expr: promql_parser.UnaryExpr) -> None:
        node.kind, node.name = "unary", self._take().text
        node.parts.append(self._node(expr.expr))

    def _matrix(self, node: Node, expr: promql_parser.MatrixSelector) -> None:
        node.kind, node.parts = "range", [Node("selector", node.start)]
        self._selector(node.parts[0], expr.vector_selector)
        self._range()

    def _subquery(self, node: Node, expr: promql_parser.SubqueryExpr) -> None:
        node.kind, node.parts = "subquery", [self._node(expr.expr)]
        self._range()

    def _call(self, node: Node, expr: promql_parser.Call) -> None:
        node.kind, node.name = "call", self._take().word
        self._parenthesized(node, expr.args)

    def _aggregate(self, node: Node, expr: promql_parser.AggregateExpr) -> None:
        node.kind, node.name = "aggregate", self._take().word
        self._groupings(node)
        self._parenthesized(node, [*([] if expr.param is None else [expr.param]), expr.expr])
        self._groupings(node)

    def _binary(self, node: Node, expr: promql_parser.BinaryExpr) -> None:
        node.kind, node.parts = "binary", [self._node(expr.lhs)]
        node.name = self._take().word
        if self._peek().word == "bool":
            self._take()
            node.returns_bool = True
        self._groupings(node)
        node.parts.append(self._node(expr.rhs))

    def _selector(self, node: Node, _expr: promql_parser.VectorSelector) -> None:
        node.kind, node.name = "selector", ""
        if self._peek().text != "{":
            node.metric = self._take()
            node.name, node.brace = node.metric.text, node.metric.end
        if self._peek().text == "{":
            self._matchers(node)
        self._modifiers()
        node.end = self._words[self._at - 1].end

    def _matchers(self, node: Node) -> None:
        node.brace, node.braces = self._take("{").end, True
        while self._peek().text != "}":
            word = self._take()
            if self._peek().text in _MATCHING:
                node.matchers.append(Matcher(word, self._take().text, self._take()))
            elif word.kind == "string":
                node.matchers.append(Matcher(None, "=", word))
        self._take("}")

    def _range(self) -> None:
        if self._take().kind != "range":
            self._at -= 1
            raise self._unexpected()
        self._modifiers()

    def _modifiers(self) -> None:
        while self._peek().word in ("offset", "@"):
            self._take()
            while self._peek().text in ("+", "-"):
                self._take()
            self._take()
            if self._peek().text == "(":
                self._take()
                self._take(")")

    def _groupings(self, node: Node) -> None:
        while self._peek().word in GROUPINGS:
            keyword = self._take().word
            labels = node.groups.setdefault(keyword, [])
            # The list of group_left may be missing; a parenthesis after it is then the operand.
            if self._peek().text == "(":
                self._take()
                while self._peek().text != ")":
                    if (token := self._take()).text != ",":
                        labels.append(token)
                self._take()

    def _parenthesized(self, node: Node, parts: Sequence[promql_parser.Expr]) -> None:
        self._take("(")
        for number, part in enumerate(parts):
            if number:
                self._take(",")
            node.parts.append(self._node(part))
        self._take(")")

    def _peek(self) -> Token:
        return self._words[self._at] if self._at < len(self._words) else Token("sign", "", 0)

    def _take(self, text: str = "") -> Token:
        token = self._peek()
        if self._at == len(self._words) or (text and token.text != text):
            raise self._unexpected()
        self._at += 1
        return token

    def _unexpected(self) -> UntranslatableError:
        token = self._peek()
        return UntranslatableError(f"{token.text!r} is not expected at character {token.start + 1}")
