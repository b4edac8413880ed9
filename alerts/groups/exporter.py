"""Alerts of the group exporter: whether the data of the other alerts is complete."""

from alerts.groups.exporter_numbers import ExporterThresholds
from alerts.groups.exporter_sources import source_alerts
from alerts.groups.exporter_targets import target_alerts
from alerts.groups.exporter_view import view_alerts
from alerts.model import Alert

__all__ = ["ExporterThresholds", "exporter_alerts"]


def exporter_alerts(numbers: ExporterThresholds) -> tuple[Alert, ...]:
    """Return the alerts."""
    return (*target_alerts(numbers), *source_alerts(numbers), *view_alerts(numbers))
