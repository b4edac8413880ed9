"""Alerts of the group capacity."""

from dataclasses import dataclass

from alerts.model import Alert


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityThresholds:
    """The numbers of this group, as they stand under [capacity] in thresholds.toml."""


def capacity_alerts(numbers: CapacityThresholds) -> tuple[Alert, ...]:
    """Give the alerts."""
    return ()
