"""Alerts of the group capacity: free capacity, and allocated devices that are missing."""

from alerts.groups.capacity_licenses import license_alerts
from alerts.groups.capacity_mig import mig_alerts
from alerts.groups.capacity_numbers import CapacityThresholds
from alerts.groups.capacity_slices import slice_alerts
from alerts.model import Alert

__all__ = ["CapacityThresholds", "capacity_alerts"]


def capacity_alerts(numbers: CapacityThresholds) -> tuple[Alert, ...]:
    """Return the alerts."""
    return (*mig_alerts(numbers), *slice_alerts(numbers), *license_alerts(numbers))
