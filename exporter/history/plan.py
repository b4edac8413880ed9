"""Ranges of time, such as ``6h``: choosing the cells for one, and averaging them to its steps."""

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Final, Generic, NamedTuple, TypeVar

from exporter.history import Track
from exporter.history.tiers import CellNumber, Cells, Counts, Tier

# Ranges that a page offers, by name, in seconds.
_OFFERED: Final = {"5m": 300.0, "1h": 3600.0, "6h": 21600.0, "24h": 86400.0, "7d": 604800.0}
_SPAN: Final = re.compile(r"([1-9][0-9]{0,5})([smhd])")
_SECONDS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Plan(NamedTuple):
    """The slots of a tier to read, and the steps that they make."""

    tier: int  # index of the tier
    first: int  # the first slot
    each: int  # slots per step
    steps: int  # number of steps
    step: float  # seconds per step

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
    """Return the plan for ``span`` seconds up to Unix time ``end`` in at most ``points`` steps.

    Steps begin at multiples of their length, so that a finished step never changes.
    """
    wanted = span / points
    # The last tier reaches furthest back, even if that is not far enough.
    reaching = [index for index, tier in enumerate(tiers) if tier.reach + tier.step >= now - end + span]
    reaching = reaching or [len(tiers) - 1]
    chosen = max((index for index in reaching if tiers[index].step <= wanted), default=reaching[0])
    length = tiers[chosen].step
    each = max(1, math.ceil(round(wanted / length, 6)))
    step = length * each
    count = max(1, min(points, math.ceil(round(span / step, 6))))
    # The newest reading belongs to the step that has just begun.
    last = math.floor(now / step) if end >= now else math.ceil(end / step) - 1
    return Plan(chosen, (last - count + 1) * each, each, count, step)


def means(cells: Sequence[float], each: int) -> list[float | None]:
    """Return the mean of the known cells of each run of ``each`` cells, None if all are unknown."""
    if each == 1:
        return [None if cell != cell else cell for cell in cells]  # noqa: PLR0124 - only NaN differs from itself
    return [
        total / each if total == total else _mean_of_known(cells[index * each : (index + 1) * each])  # noqa: PLR0124
        for index, total in enumerate(_added(cells, each))
    ]


def _mean_of_known(cells: Iterable[float]) -> float | None:
    known = [cell for cell in cells if not math.isnan(cell)]
    return sum(known) / len(known) if known else None


def shares(cells: Cells, counts: Counts, each: int, among: Sequence[int] | None = None) -> list[float | None]:
    """Return the sum of each run of ``each`` cells, divided by a number of readings; None if all are unknown.

    ``counts`` has the number of readings of each cell, and ``among`` the divisor of each step; by default, or
    if it is smaller, the divisor is the number of known readings.
    """
    known = list(_added(counts, each))
    # An unknown cell is NaN, and NaN times 0 is NaN.
    weighted = [cell * count if count else 0.0 for cell, count in zip(cells, counts, strict=True)]
    sums = _added(weighted, each)
    return [
        total / max(count, of) if count else None
        for total, count, of in zip(sums, known, among or known, strict=True)
    ]


def whole(counts: Iterable[Counts], each: int) -> list[int]:
    """Return the number of readings in each run of ``each`` cells in which at least one field was known."""
    return list(_added([max(of_fields) for of_fields in zip(*counts, strict=True)], each))


def _added(cells: Sequence[CellNumber], each: int) -> Iterable[CellNumber]:
    strides: list[Iterable[CellNumber]] = [cells[offset::each] for offset in range(each)]
    return reduce(lambda one, other: map(add, one, other), strides)


def spans_of(kept: float) -> tuple[str, ...]:
    """Return the ranges to offer if memory keeps ``kept`` seconds, the shortest first, all of it last."""
    names = [name for name, seconds in _OFFERED.items() if seconds <= kept]
    if kept not in _OFFERED.values():
        names.append(span_text(kept // 1).replace(" ", ""))
    return tuple(names)


def span_seconds(name: str) -> float | None:
    """Return the seconds of a range such as ``5m`` or ``7d``, None if it is not valid."""
    match = _SPAN.fullmatch(name)
    return None if match is None else int(match[1]) * _SECONDS[match[2]]


def span_text(seconds: float) -> str:
    """Return seconds as text in the largest unit that divides them: 1 h, 90 m, 45 s."""
    for unit, length in (("h", 3600), ("m", 60)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:g} {unit}"
    return f"{seconds:g} s"


Source = TypeVar("Source")


@dataclass(frozen=True, slots=True)
class Tracks(Collection[Track], Generic[Source]):
    """Tracks made from ``kept`` on each iteration; copy them to a tuple to read them more than once."""

    kept: Sequence[Source]
    make: Callable[[Source], Track]

    def __len__(self) -> int:
        """Return the number of tracks, without making any."""
        return len(self.kept)

    def __iter__(self) -> Iterator[Track]:
        """Make the tracks, one by one."""
        return map(self.make, self.kept)

    def __contains__(self, track: object) -> bool:
        """Return whether one of the tracks is equal."""
        return any(made == track for made in self)
