"""What a translation reports, beside the new text."""

import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

Level: TypeAlias = Literal["problem", "note"]


class Finding(NamedTuple):
    """What was not translated, or has to be known."""

    place: int
    level: Level
    reason: str
    # What it is about.
    text: str = ""


def listed(names: Sequence[str]) -> str:
    """Return names as text, the first three of many."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


class Lines:
    """The lines of a text, by place."""

    def __init__(self, text: str) -> None:
        self._ends = [found.start() for found in re.finditer("\n", text)]

    def number(self, place: int) -> int:
        """Return the number of the line that a place is in, from 1."""
        return bisect_left(self._ends, place) + 1
