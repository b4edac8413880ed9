"""The series, matchers and labels in a PromQL expression."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from tests.product.dashboards.grafana import Window

_TOKEN = re.compile(
    r'(?P<text>"(?:[^"\\]|\\.)*")|(?P<range>\[[^\]]*\])|(?P<word>[a-zA-Z_:][\w:]*)|(?P<number>[\d.]+\w*)|(?P<sign>\S)'
)
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"')
_LISTS = frozenset({"by", "without", "on", "ignoring", "group_left", "group_right"})
_WORDS = _LISTS | {"and", "or", "unless", "bool", "offset", "inf", "nan", "atan2"}
# Tokens after the name of a function or an aggregation.
_CALLED = frozenset({"(", "by", "without"})
_MADE = frozenset({"label_replace", "label_join"})
_RATES = frozenset({"rate", "irate", "increase"})
_TEXT = re.compile(r'("(?:[^"\\]|\\.)*")')
_USE = re.compile(r"\$\{?(\w+)(?::\w+)?\}?")


class Selector(NamedTuple):
    """A selector of series."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]  # label, operator, value
    range: str
    function: str  # around the selector


class Parts(NamedTuple):
    """The parts of an expression."""

    selectors: tuple[Selector, ...]
    labels: frozenset[str]  # to group and join by
    made: frozenset[str]  # by label_replace or label_join


def parts(expr: str) -> Parts:
    """Return the parts of an expression, which may contain variables."""
    tokens = [(token.lastgroup or "", token[0]) for token in _TOKEN.finditer(expanded(expr))]
    labels: set[str] = set()
    made: set[str] = set()
    selectors: list[Selector] = []
    functions: list[str] = []
    place = 0
    while place < len(tokens):
        kind, text = tokens[place]
        after = tokens[place + 1][1] if place + 1 < len(tokens) else ""
        if text == "(":
            functions.append(tokens[place - 1][1] if place else "")
        elif text == ")":
            functions.pop()
        elif kind == "text" and functions and functions[-1] in _MADE and tokens[place - 1][1] == ",":
            made |= _first_text(tokens, place)
        elif text in _LISTS:
            if after == "(":
                end = next(at for at in range(place, len(tokens)) if tokens[at][1] == ")")
                labels.update(
                    word for kind, word in tokens[place:end] if kind == "word" and word not in _LISTS
                )
                place = end
        elif text == "{" or (kind == "word" and after not in _CALLED and text.lower() not in _WORDS):
            selector, place = _selector(tokens, place, functions[-1] if functions else "")
            selectors.append(selector)
        place += 1
    return Parts(tuple(selectors), frozenset(labels), frozenset(made))


def _first_text(tokens: list[tuple[str, str]], place: int) -> set[str]:
    """Return the label that label_replace or label_join makes: the first text in a call."""
    before = tokens[place - 2][0] if place > 1 else ""
    return set() if before == "text" else {tokens[place][1].strip('"')}


def _selector(tokens: list[tuple[str, str]], place: int, function: str) -> tuple[Selector, int]:
    name = ""
    if tokens[place][0] == "word":
        name, place = tokens[place][1], place + 1
    matchers: tuple[tuple[str, str, str], ...] = ()
    if place < len(tokens) and tokens[place][1] == "{":
        end = next(at for at in range(place, len(tokens)) if tokens[at][1] == "}")
        inside = " ".join(text for _, text in tokens[place + 1 : end]).replace("= ~", "=~").replace("! ", "!")
        matchers = tuple(_MATCHER.findall(inside))
        place = end + 1
    over = ""
    if place < len(tokens) and tokens[place][0] == "range":
        over, place = tokens[place][1].strip("[]"), place + 1
    return Selector(name, matchers, over, function), place - 1


def expanded(expr: str) -> str:
    """Return an expression as PromQL: variables become their names in texts, and else numbers."""
    known = Window(0).values
    pieces = _TEXT.split(expr)
    pieces[::2] = [_USE.sub(lambda use: known.get(use[1], "1"), piece) for piece in pieces[::2]]
    pieces[1::2] = [_USE.sub(lambda use: use[1], piece) for piece in pieces[1::2]]
    return "".join(pieces)


def bare_counters(expr: Parts, counters: frozenset[str]) -> Iterator[str]:
    """Yield the counters that are used without rate, irate or increase."""
    for selector in expr.selectors:
        if selector.name in counters and not (selector.range and selector.function in _RATES):
            yield selector.name
