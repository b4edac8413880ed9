"""Tiers: the same readings in slots of different length, finer for what is new, coarser for what is older.

A slot is known by its number, Unix time divided by its length, so that the slots of a coarser tier hold whole
slots of the finer ones.
"""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

MOST_SLOTS = 720
COARSER = 6
# Polls come faster than a line can show them.
FINEST_STEP = 1.0
_NAN = math.nan

Cells: TypeAlias = "array[float]"


@dataclass(frozen=True, slots=True)
class Tier:
    """``slots`` slots of ``step`` seconds each, of which the newest is still being filled."""

    step: float
    slots: int

    @property
    def reach(self) -> float:
        """How many seconds of the past it covers."""
        return self.step * self.slots

    def slot(self, at: float) -> int:
        """Return the slot of a Unix time."""
        return math.floor(at / self.step)


def tiers_of(kept: float, step: float) -> tuple[Tier, ...]:
    """List the tiers for ``kept`` seconds of readings, one every ``step`` seconds; the finest first."""
    found = []
    length = max(step, FINEST_STEP)
    while True:
        # One more, because the newest is not full.
        needed = math.ceil(kept / length) + 1
        found.append(Tier(length, min(needed, MOST_SLOTS)))
        if needed <= MOST_SLOTS + 1:
            return tuple(found)
        length *= COARSER


def blank(count: int) -> Cells:
    """Make cells in which nothing is known."""
    return array("f", (_NAN,)) * count


class Lane:
    """What is known of one thing in one tier: a ring of cells for each of ``fields`` fields.

    A cell is the mean of what was known in its slot, NaN where nothing was.
    """

    __slots__ = ("_cells", "_counts", "_slots", "_sums", "first", "last")

    def __init__(self, fields: int, slots: int, slot: int) -> None:
        self.first = slot
        self.last = slot
        self._slots = slots
        self._cells = tuple(blank(slots) for _ in range(fields))
        self._sums = [0.0] * fields
        self._counts = [0] * fields

    def put(self, slot: int, values: Sequence[float | None], bridged: bool) -> None:
        """Add a reading to a slot that is not before the last.

        ``bridged``: the reading comes in time after the one before, so that a single slot between the two is
        an accident of the grid, and no gap.
        """
        if slot != self.last:
            self._begin(slot, values, bridged)
            return
        at, sums, counts = slot % self._slots, self._sums, self._counts
        for index, value in enumerate(values):
            if value is not None:
                sums[index] += value
                counts[index] += 1
                self._cells[index][at] = sums[index] / counts[index]

    def cut(self, slot: int) -> None:
        """Forget this slot and all that are later."""
        if slot <= self.last:
            self._blank(slot, self.last)
            self.last = slot - 1
            self.first = min(self.first, self.last)

    def window(self, first: int, stop: int) -> list[Cells]:
        """Copy the cells from slot ``first`` to the one before ``stop``, for each field."""
        low, high = max(first, self.last - self._slots + 1), min(stop, self.last + 1)
        if low >= high:
            return [blank(stop - first) for _ in self._cells]
        before, after = blank(low - first), blank(stop - high)
        begin, end = low % self._slots, (high - 1) % self._slots + 1
        if begin < end:
            return [before + cells[begin:end] + after for cells in self._cells]
        return [before + cells[begin:] + cells[:end] + after for cells in self._cells]

    def _begin(self, slot: int, values: Sequence[float | None], bridged: bool) -> None:
        at, before = slot % self._slots, (slot - 1) % self._slots
        bridged = bridged and slot == self.last + 2
        self._blank(self.last + 1, slot - 1)
        for cells, value in zip(self._cells, values, strict=True):
            cells[at] = _NAN if value is None else value
            if bridged:
                cells[before] = cells[at]
        self._sums = [value or 0.0 for value in values]
        self._counts = [0 if value is None else 1 for value in values]
        self.last = slot

    def _blank(self, first: int, last: int) -> None:
        for slot in range(max(first, last - self._slots + 1), last + 1):
            for cells in self._cells:
                cells[slot % self._slots] = _NAN
