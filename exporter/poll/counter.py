"""Which readings of a counter are believed.

A counter rises, no faster than the hardware can, and begins again with a restart of its GPU. A single reading
that contradicts this is ignored: it is not charged, not shown, and not a restart, and the last good reading
remains the base. Further readings that continue it make it the new base.
"""

from typing import Final, NamedTuple

from exporter.model import GpuReading

# Added to the time between two readings: a counter is read before or after the moment that dates it.
SLACK_SECONDS: Final = 10.0
# A value that is no restart becomes the base if the counter continues it for this time.
LASTS_SECONDS: Final = 180.0
# The limit of a GPU that does not report one; also of a GPU that reports a higher one.
HIGHEST_MILLIWATTS: Final = 10_000_000
OVERSHOOT: Final = 2.0  # factor by which energy and times may exceed their limit


def most_millijoules(reading: GpuReading) -> float:
    """Return the energy that a GPU cannot exceed in a second, by its power limit."""
    limits = (limit for name, limit in reading.power_limits_milliwatts.items() if name != "min")
    return OVERSHOOT * min(max(limits, default=0) or HIGHEST_MILLIWATTS, HIGHEST_MILLIWATTS)


class _Point(NamedTuple):
    """A value of a counter, and the time in seconds at which it was read."""

    value: int
    at: float

    def most(self, at: float, per_second: float) -> float:
        """Return what the counter may rise by until ``at``."""
        return per_second * (max(at - self.at, 0.0) + SLACK_SECONDS)

    def leads_to(self, later: "_Point", per_second: float) -> bool:
        """Return whether the counter may rise from here to the later point."""
        return 0 <= later.value - self.value <= self.most(later.at, per_second)


class GpuCounter:
    """One counter: its last reading that is believed, and the later ones that contradict that one.

    ``rises``: whether it always rises, as energy does. If it does not, it is not read correctly.
    """

    __slots__ = ("_base", "_first", "_last", "_rises", "_sure", "began_again", "continues", "low")

    def __init__(self, *, rises: bool = False) -> None:
        # Whether the last reading is not believed yet, and may be that of a counter that began again.
        self.low = False
        # Whether the last reading shows that the counter began again, and rises or stays low since.
        self.began_again = False
        # Whether the last reading is believed because it continues others that contradicted the base.
        self.continues = False
        self._rises = rises
        self._base: _Point | None = None
        # Whether another reading has confirmed the base.
        self._sure = False
        # The first and the last reading of those that contradict the base and continue each other.
        self._first: _Point | None = None
        self._last: _Point | None = None

    def take(self, value: int, at: float, per_second: float, *, outage: bool = False) -> int | None:
        """Return the rise since the last reading that is believed; None if this one is not.

        ``per_second`` is the most that the counter may rise by in a second. ``outage`` is whether it could
        not be read meanwhile, which is one sign of a restart; a lower value is the other one. A reading that
        is believed because it continues others counts from the last of these.
        """
        point, base, first, last = _Point(value, at), self._base, self._first, self._last
        self.began_again, self.continues = False, False
        if base is None:
            self._rebase(point)
            return 0
        if base.leads_to(point, per_second):
            self._rebase(point)
            self._sure = True
            return value - base.value
        fell = value <= base.most(at, per_second) and value < base.value and (value > 0 or not self._rises)
        self.low = fell and value <= base.value / 2
        continued = last is not None and last.leads_to(point, per_second)
        if fell and outage:
            self.began_again, self.continues = True, continued
            self._rebase(point)
            return value - last.value if last is not None and continued else 0
        if first is None or last is None or not continued:
            self._first, self._last = point, point
            return None
        self._last = point
        rises = value > first.value or not self._rises
        if not rises or not (self.low or not self._sure or at - first.at >= LASTS_SECONDS):
            return None
        self.began_again, self.continues = self.low, True
        self._rebase(point)
        return value - last.value

    def knows(self, value: int) -> bool:
        """Return whether the last reading, or the last one that is believed, had this value."""
        return any(point is not None and point.value == value for point in (self._base, self._last))

    def believes(self, value: int) -> bool:
        """Return whether the last reading that is believed had this value."""
        return self._base is not None and self._base.value == value

    def _rebase(self, point: _Point) -> None:
        self._base, self._sure, self._first, self._last, self.low = point, False, None, None, False
