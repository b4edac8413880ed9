"""Intervals of the rules, and the time after which a holder is idle."""

import re
from dataclasses import dataclass

_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "y": 31536000}


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Durations in the format of Prometheus, such as 1h30m."""

    interval: str
    slow_interval: str
    """Interval of the groups that look back an hour or more."""
    idle_after: str
    """Time without computing after which a holder is idle."""


def seconds(time: str) -> float:
    """Return the seconds of a duration in the format of Prometheus, which expressions cannot compute with."""
    return sum(int(number) * _SECONDS[unit] for number, unit in re.findall(r"([0-9]+)(ms|[smhdwy])", time))
