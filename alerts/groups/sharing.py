"""Alerts of the group sharing: who holds a device without using it, and who takes from the others on it."""

from alerts.groups.sharing_devices import device_alerts
from alerts.groups.sharing_holders import holder_alerts
from alerts.groups.sharing_numbers import SharingThresholds
from alerts.model import Alert

__all__ = ["SharingThresholds", "sharing_alerts"]


def sharing_alerts(numbers: SharingThresholds) -> tuple[Alert, ...]:
    """Return those that are evaluated often; what looks back a day is in ``sharing_daily``."""
    return (*holder_alerts(numbers), *device_alerts(numbers))
