"""Tiers: the same readings in slots of different lengths, fine for the newest, coarse for older ones.

The number of a slot is Unix time divided by its length, so each slot of a coarser tier consists of whole
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
# Seconds. A line cannot show faster polls.
FINEST_STEP = 1.0
_NAN = math.nan
# Up to this many expected readings per slot are counted in one byte: events trigger further ones.
_MOST_IN_A_BYTE = 64
_TYPES = ("", "B", "H")

CellNumber = TypeVar("CellNumber", int, float)
Cells: TypeAlias = "array[float]"
Counts: TypeAlias = "array[int]"


def blank(count: int) -> Cells:
    """Return unknown cells."""
    return array("f", (_NAN,)) * count


class Column:
    """A ring of ``slots`` values of 32 bits, each of which may be unknown."""

    __slots__ = ("_cells", "_known", "_slots", "_value")

    def __init__(self, slots: int) -> None:
        self._slots = slots
        # While all known values are equal: that value, and a bit for each known place. Otherwise: all cells.
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
        """Return the cells of all places, NaN if unknown; callers must not change them."""
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
        """Make room for a value that differs from the known one."""
        if self._known:
            self._cells, self._known = self.ring(), 0
        else:
            self._value = value


@dataclass(frozen=True, slots=True)
class Tier:
    """A number of slots of equal length; the newest is still being filled."""

    step: float  # seconds per slot
    slots: int  # number of slots
    count_bytes: int  # size of the counter of readings per slot; 0 if a slot has one reading

    @property
    def reach(self) -> float:
        """Seconds of history that it covers."""
        return self.step * self.slots

    def slot(self, at: float) -> int:
        """Return the slot of a Unix time."""
        return math.floor(at / self.step)


def tiers_of(kept: float, step: float) -> tuple[Tier, ...]:
    """Return the tiers for ``kept`` seconds of readings, one every ``step`` seconds; the finest first."""
    tiers = []
    length = max(step, FINEST_STEP)
    while True:
        # One more, because the newest is not full.
        needed = math.ceil(kept / length) + 1
        tiers.append(Tier(length, min(needed, MOST_SLOTS), _count_bytes(length / step)))
        if needed <= MOST_SLOTS + 1:
            return tuple(tiers)
        length *= COARSER


def _count_bytes(readings: float) -> int:
    if readings <= 1:
        return 0
    return 1 if readings <= _MOST_IN_A_BYTE else 2


class Lane:
    """One series in one tier: a ring of cells for each of ``fields`` fields.

    A cell is the mean of the known readings in its slot, NaN if there are none. Their number is kept in
    ``count_bytes`` bytes, unless each slot has one reading.

    The last slot is written when it is over or when cells are read, because more readings may come.
    """

    __slots__ = (
        "_columns",
        "_count_bytes",
        "_counters",
        "_counts",
        "_slots",
        "_sums",
        "_written",
        "first",
        "last",
    )

    def __init__(self, fields: int, slots: int, slot: int, *, count_bytes: int) -> None:
        self.first = slot
        self.last = slot
        self._slots = slots
        self._columns = tuple(Column(slots) for _ in range(fields))
        # None for a field that was never known.
        self._counters: list[Counts | None] = [None] * fields
        self._count_bytes = count_bytes
        self._sums = [0.0] * fields
        self._counts = [0] * fields
        self._written = True

    def put(self, slot: int, values: Sequence[float | None], bridged: bool) -> None:
        """Add a reading to the last slot or a later one.

        ``bridged``: the reading is in time after the previous one, so a single slot between the two is not a
        gap, and gets the same values.
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
        """Drop this slot and all later ones."""
        self._write()
        if slot <= self.last:
            self._blank(slot, self.last)
            self.last = slot - 1
            self.first = min(self.first, self.last)

    def window(self, first: int, stop: int) -> list[Cells]:
        """Return a copy of the cells from slot ``first`` to the one before ``stop``, by field."""
        self._write()
        return [self._copy(column.ring(), blank, first, stop) for column in self._columns]

    def counts(self, first: int, stop: int) -> list[Counts]:
        """Return the number of readings in each of these cells, by field."""
        self._write()
        if self._count_bytes:
            return [
                self._none(stop - first) if counter is None else self._copy(counter, self._none, first, stop)
                for counter in self._counters
            ]
        # Only NaN differs from itself.
        return [array("B", map(eq, cells, cells)) for cells in self.window(first, stop)]

    def _copy(
        self, ring: "array[CellNumber]", empty: "Callable[[int], array[CellNumber]]", first: int, stop: int
    ) -> "array[CellNumber]":
        low, high = max(first, self.last - self._slots + 1), min(stop, self.last + 1)
        if low >= high:
            return empty(stop - first)
        older, newer = empty(low - first), empty(stop - high)
        begin, end = low % self._slots, (high - 1) % self._slots + 1
        if begin < end:
            return older + ring[begin:end] + newer
        return older + ring[begin:] + ring[:end] + newer

    def _begin(self, slot: int, values: Sequence[float | None], bridged: bool) -> None:
        self._write()
        at, previous = slot % self._slots, (slot - 1) % self._slots
        bridged = bridged and slot == self.last + 2
        self._blank(self.last + 1, slot - 1)
        for column, value in zip(self._columns, values, strict=True):
            column.put(at, value)
            if bridged:
                column.put(previous, value)
        self._sums = [value or 0.0 for value in values]
        self._counts = [0 if value is None else 1 for value in values]
        self._count(at)
        if bridged:
            self._count(previous)
        self.last = slot

    def _write(self) -> None:
        """Write the means of the last slot, if it has new readings."""
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
            counter = self._counters[index]
            if counter is None and count:
                counter = self._counters[index] = self._none(self._slots)
            if counter is not None:
                counter[at] = min(count, (1 << 8 * self._count_bytes) - 1)

    def _none(self, count: int) -> Counts:
        """Return counts of no readings."""
        return array(_TYPES[self._count_bytes], (0,)) * count

    def _blank(self, first: int, last: int) -> None:
        for slot in range(max(first, last - self._slots + 1), last + 1):
            for column in self._columns:
                column.put(slot % self._slots, None)
            for counter in filter(None, self._counters):
                counter[slot % self._slots] = 0
