"""Who runs on the node: from a pid to its pod and container, and from a pod's uid to its name."""

from exporter.workloads.cgroups import CgroupPlace, parse_cgroup
from exporter.workloads.pid_view import process_view
from exporter.workloads.pod_log_dirs import index_pods, read_pod_logs
from exporter.workloads.processes import ProcessTable, boot_seconds, settled

__all__ = [
    "CgroupPlace",
    "ProcessTable",
    "boot_seconds",
    "index_pods",
    "parse_cgroup",
    "process_view",
    "read_pod_logs",
    "settled",
]
