"""Values that add up: each counts for the part of its step in which it was known.

A mean of what was known says nothing of how long that was: where one holder follows another within a step,
the means of both together are more than their GPU ever used.
"""

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import add, mul

from exporter.history.columns import Cells, Counts
from exporter.history.tiers import Number


def shares(cells: Cells, told: Counts, each: int, among: Sequence[int] | None = None) -> list[float | None]:
    """Average each ``each`` cells, None where none is known.

    ``told`` is of how many readings each cell is the mean. ``among`` is of how many readings each
    step is; by default, or where these are fewer, it is of those that are known.
    """
    known = list(_added(told, each))
    sums = _added(_weighted(cells, told), each)
    return [
        total / max(count, of) if count else None
        for total, count, of in zip(sums, known, among or known, strict=True)
    ]


def whole(told: Iterable[Counts], each: int) -> list[int]:
    """Count, for each ``each`` cells, the readings in which at least one of several fields was known."""
    return list(_added([max(counts) for counts in zip(*told, strict=True)], each))


def _weighted(cells: Cells, told: Counts) -> Sequence[float]:
    # What is not known is NaN, and that times 0 is NaN still.
    if 0 in told:
        return [cell * count if count else 0.0 for cell, count in zip(cells, told, strict=True)]
    return list(map(mul, cells, told))


def _added(cells: Sequence[Number], each: int) -> Iterable[Number]:
    strides: list[Iterable[Number]] = [cells[offset::each] for offset in range(each)]
    return reduce(lambda one, other: map(add, one, other), strides)
