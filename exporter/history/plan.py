"""Which cells answer a question about the past, and how they become its steps."""

import math
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import add
from typing import NamedTuple

from exporter.history.tiers import Tier


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
