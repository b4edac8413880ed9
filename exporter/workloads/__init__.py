"""Processes of the node: from a pid to its pod and container, and from a pod's uid to its name.

``processes.py`` reads a pid's cgroup, ``cgroups.py`` parses it, ``places.py`` corrects the place by the
pods' container ids and by pid lists of sharing systems.
"""

from exporter.workloads.cgroups import CgroupPlace, parse_cgroup
from exporter.workloads.pid_view import process_view
from exporter.workloads.places import place_by_files, place_by_pods
from exporter.workloads.pod_log_dirs import index_pods, read_pod_logs
from exporter.workloads.processes import ProcessTable, boot_seconds

__all__ = [
    "CgroupPlace",
    "ProcessTable",
    "boot_seconds",
    "index_pods",
    "parse_cgroup",
    "place_by_files",
    "place_by_pods",
    "process_view",
    "read_pod_logs",
]
