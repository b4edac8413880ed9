"""How often the rules are evaluated, and when a holder is idle."""

from dataclasses import dataclass

SHORT = "5m"
"""What "now" looks back to: a recording rule that uses it says so in its name."""
LONG = "1h"
"""What "lately" looks back to, likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Times as Prometheus writes them. ``idle_after`` is how long a holder must rest to be called idle."""

    interval: str
    slow_interval: str
    idle_after: str
