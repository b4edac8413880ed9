"""Alerts of the group hardware."""

from dataclasses import dataclass

from alerts.model import Alert


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareThresholds:
    """The numbers of this group, as they stand under [hardware] in thresholds.toml."""


def hardware_alerts(numbers: HardwareThresholds) -> tuple[Alert, ...]:
    """Give the alerts."""
    return ()
