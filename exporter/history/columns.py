"""Columns: one field through the slots of a ring, in no more memory than its values need.

What is not told of a thing, such as the share of a holder that has none, is never told. What is told is often
the same for hours: what a holder is entitled to, the memory of a notebook, the compute of one that is idle.
Only what changes has a cell for each slot.
"""

import math
from array import array
from typing import TypeAlias

_NAN = math.nan

Cells: TypeAlias = "array[float]"
Counts: TypeAlias = "array[int]"


def blank(count: int) -> Cells:
    """Make cells in which nothing is known."""
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
        """Give the cells of all places, NaN where nothing is known; nobody may change them."""
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
