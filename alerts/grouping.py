"""The alerts in the groups in which Prometheus evaluates them."""

from alerts.groups.capacity import capacity_alerts
from alerts.groups.exporter import exporter_alerts
from alerts.groups.hardware import hardware_alerts
from alerts.groups.sharing import sharing_alerts
from alerts.model import Group
from alerts.thresholds import Thresholds


def alert_groups(numbers: Thresholds) -> tuple[Group, ...]:
    """Give the groups of alerts."""
    found = {
        "exporter": exporter_alerts(numbers.exporter),
        "hardware": hardware_alerts(numbers.hardware),
        "sharing": sharing_alerts(numbers.sharing),
        "capacity": capacity_alerts(numbers.capacity),
    }
    return tuple(
        Group(name=f"gpuslice-alerts-{name}", interval=numbers.rules.interval, rules=alerts)
        for name, alerts in found.items()
    )
