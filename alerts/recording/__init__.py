"""The recording rules: what alerts and dashboards stand on, reckoned once."""

from alerts.model import Group
from alerts.recording.containers import container_records, detail_records
from alerts.recording.levels import gpu_records, level_records, namespace_records
from alerts.recording.names import name_records
from alerts.recording.windows import Windows

__all__ = ["Windows", "recording_groups"]


def recording_groups(windows: Windows) -> tuple[Group, ...]:
    """Give the groups in the order in which one stands on the other."""
    often, seldom = windows.interval, windows.slow_interval
    return (
        Group(name="gpuslice-names", interval=often, rules=name_records()),
        Group(name="gpuslice-containers", interval=often, rules=container_records()),
        Group(name="gpuslice-gpus", interval=often, rules=gpu_records()),
        Group(name="gpuslice-levels", interval=often, rules=level_records(windows)),
        Group(name="gpuslice-namespaces", interval=often, rules=namespace_records(windows)),
        Group(name="gpuslice-detail", interval=seldom, rules=detail_records(windows)),
    )
