"""Changes of a text, by position."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Edit(NamedTuple):
    """A text in place of another one."""

    start: int
    end: int
    text: str


class Edits:
    """Collects the changes of a text: replaced parts, and parts that are put around others."""

    def __init__(self) -> None:
        self._replaced: list[Edit] = []
        self._before: dict[int, str] = {}
        self._after: dict[int, str] = {}

    def replace(self, start: int, end: int, text: str) -> None:
        """Put a text in place of a part."""
        self._replaced.append(Edit(start, end, text))

    def surround(self, start: int, end: int, before: str, after: str) -> None:
        """Put texts before and after a part, outside of those that are already around it."""
        self._before[start] = before + self._before.get(start, "")
        self._after[end] = self._after.get(end, "") + after

    def all(self) -> list[Edit]:
        """Return all changes in their order."""
        # What belongs to a part comes before what is put after it, and that before what starts there.
        made = [
            *((edit, 0 if edit.start == edit.end else 3) for edit in self._replaced),
            *((Edit(at, at, text), 1) for at, text in self._after.items()),
            *((Edit(at, at, text), 2) for at, text in self._before.items()),
        ]
        return [
            edit
            for edit, _ in sorted(made, key=lambda one: (one[0].start, one[1]))
            if edit.text or edit.end > edit.start
        ]


def changed(text: str, edits: Iterable[Edit]) -> str:
    """Return a text with its changes, which are in order and do not overlap."""
    parts, at = [], 0
    for start, end, new in edits:
        parts += [text[at:start], new]
        at = end
    return "".join([*parts, text[at:]])


def shifted(edits: Sequence[Edit], by: int) -> list[Edit]:
    """Return the changes of a text that is a part of another one, as changes of that one."""
    return [Edit(start + by, end + by, text) for start, end, text in edits]
