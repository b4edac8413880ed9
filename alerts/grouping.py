"""The alerts in the groups in which Prometheus evaluates them."""

from alerts.groups.capacity import capacity_alerts
from alerts.groups.exporter import target_alerts
from alerts.groups.exporter_data import data_alerts
from alerts.groups.hardware import state_alerts
from alerts.groups.hardware_errors import error_alerts
from alerts.groups.sharing import daily_alerts, sharing_alerts
from alerts.model import Group
from alerts.thresholds import Thresholds


def alert_groups(numbers: Thresholds) -> tuple[Group, ...]:
    """Return the groups of alerts."""
    often, seldom = numbers.rules.interval, numbers.rules.slow_interval
    groups = {
        "exporter": (often, (*target_alerts(numbers.exporter), *data_alerts(numbers.exporter))),
        "hardware": (often, (*state_alerts(numbers.hardware), *error_alerts(numbers.hardware))),
        "sharing": (often, sharing_alerts(numbers.sharing)),
        "sharing-daily": (seldom, daily_alerts(numbers.sharing)),
        "capacity": (often, capacity_alerts(numbers.capacity)),
    }
    return tuple(
        Group(name=f"gpuslice-alerts-{name}", interval=interval, rules=alerts)
        for name, (interval, alerts) in groups.items()
    )
