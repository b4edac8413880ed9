"""Actions of Go templates, ``{{ … }}``, in texts of any length: each character is looked at once."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

# A character that no file has, in place of those of an action.
_HOLE: Final = "\ue000"
_LINE: Final = re.compile(rf"^[ \t{_HOLE}]*{_HOLE}[ \t{_HOLE}]*(?=\r?$)", re.MULTILINE)


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
    return _LINE.sub(lambda line: " " * len(line[0]), masked).replace(_HOLE, "x")
