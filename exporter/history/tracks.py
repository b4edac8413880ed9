"""Tracks that are made when somebody looks at them, and not kept.

All of a large node at once are a million numbers, each of which Python has as an object: ten times as much
memory as the cells that they are made of, and as the answer that is written of them one by one.
"""

from collections.abc import Callable, Sequence
from operator import eq
from typing import Generic, TypeVar, overload

from exporter.history.past import Track

Kept = TypeVar("Kept")


class Tracks(Sequence[Track], Generic[Kept]):
    """The tracks that ``make`` makes of what is ``kept``; who looks twice should make a tuple of them."""

    def __init__(self, kept: Sequence[Kept], make: Callable[[Kept], Track]) -> None:
        self._kept = kept
        self._make = make

    def __len__(self) -> int:
        """Count them without making any."""
        return len(self._kept)

    @overload
    def __getitem__(self, place: int) -> Track: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Track]: ...
    def __getitem__(self, place: int | slice) -> Track | Sequence[Track]:
        """Make one, or those of a slice."""
        if isinstance(place, slice):
            return [self._make(each) for each in self._kept[place]]
        return self._make(self._kept[place])

    def __eq__(self, other: object) -> bool:
        """Tell whether it is the same as any sequence, track by track."""
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]  # tracks have none
