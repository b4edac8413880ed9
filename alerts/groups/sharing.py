"""Alerts of the group sharing: containers that hold a device without using it, or take from others on it."""

from alerts.groups.sharing_devices import device_alerts
from alerts.groups.sharing_holders import holder_alerts
from alerts.groups.sharing_numbers import SharingThresholds
from alerts.model import Alert

__all__ = ["SharingThresholds", "sharing_alerts"]


def sharing_alerts(numbers: SharingThresholds) -> tuple[Alert, ...]:
    """Return the alerts that are evaluated often; those that look back a day are in ``sharing_daily``."""
    return (*holder_alerts(numbers), *device_alerts(numbers))
