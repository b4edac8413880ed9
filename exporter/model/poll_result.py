"""The result of one poll by source, and the names of collectors and failures."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from exporter.model import (
    Allocations,
    GpuReading,
    HardwareReading,
    HostDevices,
    JobFiles,
    NodeObject,
    PodName,
    SystemFiles,
    Workloads,
)

SHARING: Final = "sharing"
"""The collector that reads the files of sharing systems."""
JOBS: Final = "jobs"
"""The collector that reads the files of a batch system."""
DEADLINE: Final = "deadline"
"""Reason of a collector whose source did not answer in time."""
POLL_FAILED: Final = "poll_failed"
"""Reason of every collector while the poll itself fails: its reading is not shown."""
NO_PROCESS_LISTS: Final = "no_process_lists"
"""Reason code: no device of the node reports its processes."""
CONFIDENTIAL_LISTS: Final = (
    "process lists are not supported under confidential computing: the driver shows no processes"
)
"""Why the processes of a device are unknown when its driver may hide them."""
OTHER_PIDS: Final = "the driver reports pids of the machine, and --proc-root shows another pid namespace"
"""Why the processes of a device are unknown when its driver reports pids of another namespace."""
NVIDIA_MODULE: Final = "module/nvidia/version"
"""Path in sysfs that exists while the kernel module of the NVIDIA driver is loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PollResult:
    """The input of a snapshot; None is a source that has not answered."""

    # GPUs to be shown.
    gpus: tuple[GpuReading, ...] = ()
    # The drivers' answers about the node as a whole.
    hardware: HardwareReading = field(default_factory=HardwareReading)
    allocations: Allocations | None = None
    # Running pods that the kubelet has not listed since its start; None if it does not answer.
    unlisted: frozenset[PodName] | None = frozenset()
    # False if some of the unlisted pods may hold any device.
    covered: bool = True
    # Whether the kubelet has reported the allocations in this poll.
    confirmed: bool = True
    # UUIDs of the GPUs that were read between the last poll and this one.
    late: frozenset[str] = frozenset()
    workloads: Workloads | None = None
    host_devices: HostDevices | None = None
    node: NodeObject | None = None
    # Files of sharing systems, by system.
    files: Mapping[str, SystemFiles] = field(default_factory=dict)
    # UID of the exporter's own pod; "" outside a pod.
    own_uid: str = ""
    # Source of the labels and annotations of pods; "" if there is none.
    objects_from: str = ""
    # Why requested objects of the Kubernetes API are not available.
    unfollowed: tuple[str, ...] = ()
    # None unless enabled by a setting.
    jobs: JobFiles | None = None
    # Whether the kernel module of the NVIDIA driver is loaded.
    nvidia_module: bool | None = None
