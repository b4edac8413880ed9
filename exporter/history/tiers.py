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

_NAN = math.nan

Cells: TypeAlias = "array[float]"
Counts: TypeAlias = "array[int]"


def blank(count: int) -> Cells:
    """Return cells in which nothing is known."""
    return array("f", (_NAN,)) * count


class Column:
    """``slots`` values of 32 bits or None."""

    __slots__ = ("_cells", "_known", "_slots", "_value")

    def __init__(self, slots: int) -> None:
        self._slots = slots
        # While all that is known is one value: at which places, as bits. Once there is a second: all values.
        self._value = 0.0
        self._known = 0
        self._cells: Cells | None = None

    def put(self, at: int, value: float | None) -> None:
        """Set the value at a place of the ring, from 0."""
        if self._cells is None and value is not None and value != self._value:
            self._begin(value)
        if self._cells is not None:
            self._cells[at] = _NAN if value is None else value
        elif value is not None:
            self._known |= 1 << at
        else:
            self._known &= ~(1 << at)

    def ring(self) -> Cells:
        """Return the cells of all places, NaN where nothing is known; nobody may change them."""
        if self._cells is not None:
            return self._cells
        ring, known = blank(self._slots), f"{self._known:b}"[::-1]
        begin = known.find("1")
        while begin >= 0:
            end = known.find("0", begin)
            end = end if end >= 0 else len(known)
            ring[begin:end] = array("f", (self._value,)) * (end - begin)
            begin = known.find("1", end)
        return ring

    def _begin(self, value: float) -> None:
        """Make room for a value that is not the one that is known."""
        if self._known:
            self._cells, self._known = self.ring(), 0
        else:
            self._value = value


MOST_SLOTS = 720
COARSER = 6
# Polls come faster than a line can show them.
FINEST_STEP = 1.0
Number = TypeVar("Number", int, float)

# So many readings of a slot are counted in one byte. There may be more than were meant to be: what the driver
# tells of is read at once.
_MOST_IN_A_BYTE = 64
_TYPES = ("", "B", "H")


@dataclass(frozen=True, slots=True)
class Tier:
    """``slots`` slots of ``step`` seconds each, of which the newest is still being filled.

    Where a slot is of several readings it matters of how many, which is told in ``count_bytes``, else in 0.
    """

    step: float
    slots: int
    count_bytes: int

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
        found.append(Tier(length, min(needed, MOST_SLOTS), _count_bytes(length / step)))
        if needed <= MOST_SLOTS + 1:
            return tuple(found)
        length *= COARSER


def _count_bytes(readings: float) -> int:
    if readings <= 1:
        return 0
    return 1 if readings <= _MOST_IN_A_BYTE else 2


class Lane:
    """What is known of one thing in one tier: a ring of cells for each of ``fields`` fields.

    A cell is the mean of what was known in its slot, NaN where nothing was. Of how many readings it is the
    mean is kept besides, in ``count_bytes``; where these are 0, a slot is to have one.

    The mean of the last slot is written when it is over or when somebody reads: more readings may come.
    """

    __slots__ = (
        "_columns",
        "_count_bytes",
        "_counts",
        "_slots",
        "_sums",
        "_told",
        "_written",
        "first",
        "last",
    )

    def __init__(self, fields: int, slots: int, slot: int, *, count_bytes: int) -> None:
        self.first = slot
        self.last = slot
        self._slots = slots
        self._columns = tuple(Column(slots) for _ in range(fields))
        # Of a field that was never known there are none.
        self._told: list[Counts | None] = [None] * fields
        self._count_bytes = count_bytes
        self._sums = [0.0] * fields
        self._counts = [0] * fields
        self._written = True

    def put(self, slot: int, values: Sequence[float | None], bridged: bool) -> None:
        """Add a reading to a slot that is not before the last.

        ``bridged``: the reading comes in time after the one before, so that a single slot between the two is
        an accident of the grid, and no gap.
        """
        if slot != self.last:
            self._begin(slot, values, bridged)
            return
        sums, counts = self._sums, self._counts
        for index, value in enumerate(values):
            if value is not None:
                sums[index] += value
                counts[index] += 1
        self._written = False

    def cut(self, slot: int) -> None:
        """Forget this slot and all that are later."""
        self._write()
        if slot <= self.last:
            self._blank(slot, self.last)
            self.last = slot - 1
            self.first = min(self.first, self.last)

    def window(self, first: int, stop: int) -> list[Cells]:
        """Copy the cells from slot ``first`` to the one before ``stop``, for each field."""
        self._write()
        return [self._copy(column.ring(), blank, first, stop) for column in self._columns]

    def told(self, first: int, stop: int) -> list[Counts]:
        """Copy of how many readings these cells are the means, for each field."""
        self._write()
        if self._count_bytes:
            return [
                self._none(stop - first) if told is None else self._copy(told, self._none, first, stop)
                for told in self._told
            ]
        # Only NaN differs from itself.
        return [array("B", map(eq, cells, cells)) for cells in self.window(first, stop)]

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
        self._write()
        at, before = slot % self._slots, (slot - 1) % self._slots
        bridged = bridged and slot == self.last + 2
        self._blank(self.last + 1, slot - 1)
        for column, value in zip(self._columns, values, strict=True):
            column.put(at, value)
            if bridged:
                column.put(before, value)
        self._sums = [value or 0.0 for value in values]
        self._counts = [0 if value is None else 1 for value in values]
        self._count(at)
        if bridged:
            self._count(before)
        self.last = slot

    def _write(self) -> None:
        """Write the means of the last slot, if there were readings since they were written."""
        if self._written:
            return
        self._written = True
        at = self.last % self._slots
        for column, total, count in zip(self._columns, self._sums, self._counts, strict=True):
            if count:
                column.put(at, total / count)
        self._count(at)

    def _count(self, at: int) -> None:
        if not self._count_bytes:
            return
        for index, count in enumerate(self._counts):
            told = self._told[index]
            if told is None and count:
                told = self._told[index] = self._none(self._slots)
            if told is not None:
                told[at] = min(count, (1 << 8 * self._count_bytes) - 1)

    def _none(self, count: int) -> Counts:
        """Return counts of no readings."""
        return array(_TYPES[self._count_bytes], (0,)) * count

    def _blank(self, first: int, last: int) -> None:
        for slot in range(max(first, last - self._slots + 1), last + 1):
            for column in self._columns:
                column.put(slot % self._slots, None)
            for told in filter(None, self._told):
                told[slot % self._slots] = 0
