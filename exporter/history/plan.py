"""Which cells answer a question about the past, and how they become its steps."""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from operator import add, eq, mul
from typing import Generic, NamedTuple, TypeVar, overload

from exporter.history.past import Track
from exporter.history.tiers import Cells, Counts, Number, Tier


class Plan(NamedTuple):
    """``steps`` steps of ``each`` slots of the tier number ``tier``, from its slot ``first`` on."""

    tier: int
    first: int
    each: int
    steps: int
    step: float

    @property
    def start(self) -> float:
        """Unix time at which the first step begins."""
        return self.first * (self.step / self.each)

    @property
    def end(self) -> float:
        """Unix time at which the last step ends."""
        return self.stop * (self.step / self.each)

    @property
    def stop(self) -> int:
        """The slot after the last."""
        return self.first + self.steps * self.each


def plan(tiers: Sequence[Tier], *, now: float, end: float, span: float, points: int) -> Plan:
    """Choose the tier for ``span`` seconds up to ``end`` in at most ``points`` steps.

    Steps stand on a grid of their own length, so that a step shows the same as long as it is shown.
    """
    wanted = span / points
    # The last tier is what there is, even where it does not reach as far.
    reaching = [index for index, tier in enumerate(tiers) if tier.reach + tier.step >= now - end + span]
    reaching = reaching or [len(tiers) - 1]
    chosen = max((index for index in reaching if tiers[index].step <= wanted), default=reaching[0])
    length = tiers[chosen].step
    each = max(1, math.ceil(round(wanted / length, 6)))
    step = length * each
    count = max(1, min(points, math.ceil(round(span / step, 6))))
    # What was read just now is of the step that has just begun.
    last = math.floor(now / step) if end >= now else math.ceil(end / step) - 1
    return Plan(chosen, (last - count + 1) * each, each, count, step)


def means(cells: Sequence[float], each: int) -> list[float | None]:
    """Average each ``each`` cells over those that are known, None where none is."""
    if each == 1:
        return [None if cell != cell else cell for cell in cells]  # noqa: PLR0124 - only NaN differs from itself
    totals: Iterable[float] = reduce(lambda one, other: map(add, one, other), _strides(cells, each))
    return [
        total / each if total == total else _mean(cells[index * each : (index + 1) * each])  # noqa: PLR0124
        for index, total in enumerate(totals)
    ]


def _strides(cells: Sequence[float], each: int) -> list[Iterable[float]]:
    return [cells[offset::each] for offset in range(each)]


def _mean(cells: Iterable[float]) -> float | None:
    known = [cell for cell in cells if not math.isnan(cell)]
    return sum(known) / len(known) if known else None


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
        """Return one, or those of a slice."""
        if isinstance(place, slice):
            return [self._make(each) for each in self._kept[place]]
        return self._make(self._kept[place])

    def __eq__(self, other: object) -> bool:
        """Return whether it is the same as any sequence, track by track."""
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]  # tracks have none
