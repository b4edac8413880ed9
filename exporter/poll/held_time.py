"""The time for which a container holds a device, and the part of it that readings of the GPU cover.

A reading covers the time since the previous one. What a container holds meanwhile waits for it, and counts as
measured at most once. So the measured part never exceeds the whole, also if the entitlement changes.
"""

from dataclasses import replace
from typing import NamedTuple

from exporter.model import ContainerRow, Totals


class Interval(NamedTuple):
    """The time between two polls, in seconds."""

    elapsed: float
    # The part of it in which the container existed.
    lived: float
    # Seconds that a new reading covers; None without one, 0 if nothing is known of them.
    covered: float | None


class HeldTime:
    """Adds up the time for which one container holds a device."""

    def __init__(self) -> None:
        # Held since the last reading: seconds, and GPU-seconds of the entitlement.
        self._waiting = 0.0, 0.0

    def miss(self) -> None:
        """Count the time since the last reading as unmeasured: the container was not seen in all of it."""
        self._waiting = 0.0, 0.0

    def add(self, totals: Totals, row: ContainerRow, interval: Interval, *, holds: bool) -> Totals:
        """Return the totals with one interval added; ``holds``: the container has an allocation."""
        seconds = interval.lived * holds
        gpu_seconds = interval.lived * (row.compute_entitled or 0.0)
        held = integrate(totals.held_seconds, 1.0 if holds else None, seconds)
        entitled = integrate(totals.entitled_gpu_seconds, row.compute_entitled, interval.lived)
        seen, gpu_seen = self._covered(interval, seconds, gpu_seconds)
        memory = seen if row.memory_used is not None else 0.0
        compute = gpu_seen if row.compute_used is not None else 0.0
        known_use = row.compute_used if row.compute_entitled is not None else None
        return replace(
            totals,
            held_seconds=held,
            memory_measured_seconds=_part(held, totals.memory_measured_seconds, memory),
            entitled_gpu_seconds=entitled,
            measured_gpu_seconds=_part(entitled, totals.measured_gpu_seconds, compute),
            measured_use_gpu_seconds=integrate(
                totals.measured_use_gpu_seconds, None if interval.covered is None else known_use, seen
            ),
        )

    def _covered(self, interval: Interval, seconds: float, gpu_seconds: float) -> tuple[float, float]:
        """Return the seconds and GPU-seconds of holding that a new reading covers."""
        whole = self._waiting[0] + seconds, self._waiting[1] + gpu_seconds
        self._waiting = whole if interval.covered is None else (0.0, 0.0)
        if not interval.covered:
            return 0.0, 0.0
        return whole if interval.covered > interval.elapsed else (seconds, gpu_seconds)


def integrate(total: float | None, rate: float | None, seconds: float) -> float | None:
    """Return the integral: it begins at 0 with the first known rate, and does not change without one."""
    return total if rate is None else (total or 0.0) + rate * seconds


def _part(whole: float | None, part: float | None, more: float) -> float | None:
    """Return the part of a whole with more added to it; None while the whole is unknown."""
    # The whole was added up in another order, and may differ in the last digit.
    return None if whole is None else min((part or 0.0) + more, whole)
