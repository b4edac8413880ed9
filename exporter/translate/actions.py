"""Actions of Go templates, ``{{ … }}``, in texts of any length: each character is looked at once."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

# A character that no file has, in place of those of an action.
_HOLE: Final = "\ue000"
_LINE: Final = re.compile(r"[^\r\n]+")


class Span(NamedTuple):
    """A part of a text."""

    start: int
    end: int


def actions(text: str) -> Iterator[Span]:
    """Yield the actions of a text; one without an end is none."""
    at = 0
    while (start := text.find("{{", at)) >= 0 and (end := text.find("}}", start + 2)) >= 0:
        at = end + 2
        yield Span(start, at)


def without_actions(text: str) -> str:
    """Return a text of the same length: lines of actions alone are blank, and other actions are words."""
    parts, at = [], 0
    for start, end in actions(text):
        parts += [text[at:start], re.sub(r"[^\r\n]", _HOLE, text[start:end])]
        at = end
    masked = "".join([*parts, text[at:]])
    return _LINE.sub(_blank, masked).replace(_HOLE, "x")


def _blank(line: re.Match[str]) -> str:
    only_actions = _HOLE in line[0] and not line[0].strip(f" \t{_HOLE}")
    return " " * len(line[0]) if only_actions else line[0]
