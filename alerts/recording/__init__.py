"""The recording rules: the sums that alerts and dashboards use."""

from alerts.model import Group
from alerts.recording.containers import container_records
from alerts.recording.detail import detail_records
from alerts.recording.gpus import gpu_records
from alerts.recording.hours import hour_records
from alerts.recording.isolation import isolation_records
from alerts.recording.levels import level_records, namespace_records
from alerts.recording.names import name_records
from alerts.windows import Windows

__all__ = ["Windows", "recording_groups"]


def recording_groups(windows: Windows) -> tuple[Group, ...]:
    """Return the groups, each after those that it uses."""
    often, seldom = windows.interval, windows.slow_interval
    return (
        Group(name="gpuslice-former-names", interval=often, rules=name_records()),
        Group(
            name="gpuslice-former-containers",
            interval=often,
            rules=(*container_records(windows), *isolation_records()),
        ),
        Group(name="gpuslice-former-gpus", interval=often, rules=gpu_records()),
        Group(name="gpuslice-former-levels", interval=often, rules=level_records()),
        Group(name="gpuslice-former-namespaces", interval=often, rules=namespace_records()),
        Group(name="gpuslice-former-hours", interval=seldom, rules=hour_records()),
        Group(name="gpuslice-former-detail", interval=seldom, rules=detail_records()),
    )
