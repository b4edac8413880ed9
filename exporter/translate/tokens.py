"""The words of a PromQL expression with their positions, which the parser does not report.

Variables of Grafana (``$x``, ``${x}``, ``[[x]]``) and templates of Helm (``{{ … }}``) are words, too.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal, TypeAlias

from exporter.translate.names import UntranslatableError

Kind: TypeAlias = Literal["name", "number", "string", "variable", "range", "sign"]
"""``variable`` is a whole variable; a name with a variable in it is a ``name``; ``range`` is ``[5m]``."""

VARIABLE: Final = re.compile(r"\$\{[^}]*\}|\$\w+|\[\[\w+(?::\w+)?\]\]|\{\{[^{}]*\}\}", re.DOTALL)
_WORD = re.compile(rf"(?:(?:{VARIABLE.pattern})|[A-Za-z0-9_:.])+(?:(?<=[0-9.][eE])[+-][0-9]+)?", re.DOTALL)
_STRING = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|`[^`]*`")
# Possessive: the words of a variable are characters of a range too, so there are many ways to fail.
_RANGE = re.compile(rf"\[(?:{VARIABLE.pattern}|[^\][$])*+\]", re.DOTALL)
_SIGN = re.compile(r"==|!=|=~|!~|>=|<=|[-+*/%^<>=@,(){}]")
_SPACE = re.compile(r"(?:\s|#[^\n]*)+")
_NUMBER = re.compile(r"\.?[0-9].*|inf|nan", re.IGNORECASE | re.DOTALL)
# The parser ends the process on an expression that is nested deeper, or needs very long for a longer one.
MOST_TOKENS: Final = 3000
DEEPEST: Final = 100


@dataclass(frozen=True, slots=True)
class Token:
    """A word of an expression."""

    kind: Kind
    text: str
    start: int

    @property
    def end(self) -> int:
        """Return the position after it."""
        return self.start + len(self.text)

    @property
    def value(self) -> str:
        """Return the content of a string without escapes; raises UntranslatableError for one with escapes."""
        if self.text[0] != "`" and "\\" in self.text:
            raise UntranslatableError(f"the string {self.text} has escapes")
        return self.text[1:-1]

    @property
    def word(self) -> str:
        """Return the text in lower case, as keywords are compared."""
        return self.text.lower() if self.kind == "name" else self.text

    @property
    def has_variable(self) -> bool:
        """Return whether the word is made of a variable."""
        return self.kind != "string" and VARIABLE.search(self.text) is not None


def tokens(text: str) -> list[Token]:
    """Return the words of an expression, without comments; raises UntranslatableError."""
    found = list(islice(_tokens(text), MOST_TOKENS + 1))
    if len(found) > MOST_TOKENS:
        raise UntranslatableError(f"the expression has more than {MOST_TOKENS} words")
    depth = signs = 0
    for token in found:
        depth += (token.text in ("(", "{")) - (token.text in (")", "}"))
        signs = signs + 1 if token.text in ("+", "-", "^") else 0
        if max(depth, signs) > DEEPEST:
            raise UntranslatableError(f"the expression is nested deeper than {DEEPEST}")
    return found


def _tokens(text: str) -> Iterator[Token]:
    at = 0
    patterns: tuple[tuple[re.Pattern[str], Kind], ...] = (
        (_STRING, "string"),
        (_WORD, "name"),
        (_RANGE, "range"),
        (_SIGN, "sign"),
    )
    while at < len(text):
        if space := _SPACE.match(text, at):
            at = space.end()
            continue
        for pattern, kind in patterns:
            if match := pattern.match(text, at):
                yield Token(_kind(match[0]) if kind == "name" else kind, match[0], at)
                at = match.end()
                break
        else:
            raise UntranslatableError(f"{text[at]!r} is not expected at character {at + 1}")


def _kind(word: str) -> Kind:
    if VARIABLE.fullmatch(word):
        return "variable"
    return "number" if _NUMBER.fullmatch(word) else "name"
