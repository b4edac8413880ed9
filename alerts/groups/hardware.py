"""Alerts of the group hardware: conditions of GPUs, bad links, and errors."""

from alerts.groups.hardware_conditions import condition_alerts
from alerts.groups.hardware_links import link_alerts
from alerts.groups.hardware_memory import memory_alerts
from alerts.groups.hardware_numbers import HardwareThresholds
from alerts.groups.hardware_presence import presence_alerts
from alerts.groups.hardware_xid import xid_alerts
from alerts.model import Alert

__all__ = ["HardwareThresholds", "hardware_alerts"]


def hardware_alerts(numbers: HardwareThresholds) -> tuple[Alert, ...]:
    """Return the alerts."""
    return (
        *condition_alerts(numbers),
        *presence_alerts(numbers),
        *xid_alerts(numbers),
        *memory_alerts(numbers),
        *link_alerts(numbers),
    )
