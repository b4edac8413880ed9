"""Tiers: the same readings in slots of different length, finer for what is new, coarser for what is older.

A slot is known by its number, Unix time divided by its length, so that the slots of a coarser tier hold whole
slots of the finer ones.
"""

import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import eq
from typing import TypeAlias, TypeVar

MOST_SLOTS = 720
COARSER = 6
# Polls come faster than a line can show them.
FINEST_STEP = 1.0
_NAN = math.nan
Number = TypeVar("Number", int, float)

Cells: TypeAlias = "array[float]"
Counts: TypeAlias = "array[int]"
_MOST_COUNTED = 65535


@dataclass(frozen=True, slots=True)
class Tier:
    """``slots`` slots of ``step`` seconds each, of which the newest is still being filled.

    ``counted``: a slot is of several readings, so that it matters of how many.
    """

    step: float
    slots: int
    counted: bool

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
        found.append(Tier(length, min(needed, MOST_SLOTS), counted=length > step))
        if needed <= MOST_SLOTS + 1:
            return tuple(found)
        length *= COARSER


def blank(count: int) -> Cells:
    """Make cells in which nothing is known."""
    return array("f", (_NAN,)) * count


def uncounted(count: int) -> Counts:
    """Make counts of no readings."""
    return array("H", (0,)) * count


class Lane:
    """What is known of one thing in one tier: a ring of cells for each of ``fields`` fields.

    A cell is the mean of what was known in its slot, NaN where nothing was. ``counted``: of how many readings
    it is the mean is kept besides; where it is not, a slot is to have one.
    """

    __slots__ = ("_cells", "_counts", "_slots", "_sums", "_told", "first", "last")

    def __init__(self, fields: int, slots: int, slot: int, *, counted: bool) -> None:
        self.first = slot
        self.last = slot
        self._slots = slots
        self._cells = tuple(blank(slots) for _ in range(fields))
        self._told = tuple(uncounted(slots) for _ in range(fields if counted else 0))
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
        self._count(at)

    def cut(self, slot: int) -> None:
        """Forget this slot and all that are later."""
        if slot <= self.last:
            self._blank(slot, self.last)
            self.last = slot - 1
            self.first = min(self.first, self.last)

    def window(self, first: int, stop: int) -> list[Cells]:
        """Copy the cells from slot ``first`` to the one before ``stop``, for each field."""
        return [self._copy(cells, blank, first, stop) for cells in self._cells]

    def told(self, first: int, stop: int) -> list[Counts]:
        """Copy of how many readings these cells are the means, for each field."""
        if self._told:
            return [self._copy(counts, uncounted, first, stop) for counts in self._told]
        # Only NaN differs from itself.
        return [array("H", map(eq, cells, cells)) for cells in self.window(first, stop)]

    def _copy(
        self, ring: "array[Number]", empty: "Callable[[int], array[Number]]", first: int, stop: int
    ) -> "array[Number]":
        low, high = max(first, self.last - self._slots + 1), min(stop, self.last + 1)
        if low >= high:
            return empty(stop - first)
        before, after = empty(low - first), empty(stop - high)
        begin, end = low % self._slots, (high - 1) % self._slots + 1
        if begin < end:
            return before + ring[begin:end] + after
        return before + ring[begin:] + ring[:end] + after

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
        self._count(at)
        if bridged:
            self._count(before)
        self.last = slot

    def _count(self, at: int) -> None:
        for told, count in zip(self._told, self._counts, strict=False):
            told[at] = min(count, _MOST_COUNTED)

    def _blank(self, first: int, last: int) -> None:
        for slot in range(max(first, last - self._slots + 1), last + 1):
            for cells in self._cells:
                cells[slot % self._slots] = _NAN
            for told in self._told:
                told[slot % self._slots] = 0
