"""Alerts of the group exporter."""

from dataclasses import dataclass

from alerts.model import Alert


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterThresholds:
    """The numbers of this group, as they stand under [exporter] in thresholds.toml."""


def exporter_alerts(numbers: ExporterThresholds) -> tuple[Alert, ...]:
    """Give the alerts."""
    return ()
