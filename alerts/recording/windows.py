"""How often the rules are evaluated, and when a holder is idle."""

import re
from dataclasses import dataclass

SHORT = "5m"
"""What "now" looks back to: a recording rule that uses it says so in its name."""
LONG = "1h"
"""What "lately" looks back to, likewise."""

_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "y": 31536000}


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Times as Prometheus writes them. ``idle_after`` is how long a holder must rest to be called idle."""

    interval: str
    slow_interval: str
    idle_after: str


def seconds(time: str) -> float:
    """Give the seconds of a time as Prometheus writes it (1h30m), which expressions cannot reckon with."""
    return sum(int(number) * _SECONDS[unit] for number, unit in re.findall(r"([0-9]+)(ms|[smhdwy])", time))
