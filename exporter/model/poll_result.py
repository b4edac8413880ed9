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

SHARING: Final = "sharing"  # the collector that reads the files of sharing systems
JOBS: Final = "jobs"  # the collector that reads the files of a batch system
DEADLINE: Final = "deadline"  # reason of a collector whose source did not answer in time
# Reason of every collector while the poll itself fails: its reading is not shown.
POLL_FAILED: Final = "poll_failed"
NO_PROCESS_LISTS: Final = "no_process_lists"  # reason code: no device of the node reports its processes
# Why the processes of a device are unknown when its driver may hide them.
CONFIDENTIAL_LISTS: Final = (
    "process lists are not supported under confidential computing: the driver shows no processes"
)
# Why the processes of a device are unknown when its driver reports pids of another namespace.
OTHER_PIDS: Final = "the driver reports pids of the machine, and --proc-root shows another pid namespace"
# Path in sysfs that exists while the kernel module of the NVIDIA driver is loaded.
NVIDIA_MODULE: Final = "module/nvidia/version"


@dataclass(frozen=True, slots=True, kw_only=True)
class PollResult:
    """The input of a snapshot; None is a source that has not answered."""

    gpus: tuple[GpuReading, ...] = ()  # GPUs to be shown
    # The drivers' answers about the node as a whole.
    hardware: HardwareReading = field(default_factory=HardwareReading)
    allocations: Allocations | None = None
    # Running pods that the kubelet has not listed since its start; None if it does not answer.
    unlisted: frozenset[PodName] | None = frozenset()
    covered: bool = True  # False if some of the unlisted pods may hold any device
    confirmed: bool = True  # whether the kubelet has reported the allocations in this poll
    late: frozenset[str] = frozenset()  # UUIDs of the GPUs that were read between the last poll and this one
    workloads: Workloads | None = None
    host_devices: HostDevices | None = None
    node: NodeObject | None = None
    files: Mapping[str, SystemFiles] = field(default_factory=dict)  # files of sharing systems, by system
    own_uid: str = ""  # UID of the exporter's own pod; "" outside a pod
    objects_from: str = ""  # source of the labels and annotations of pods; "" if there is none
    objects_pending: bool = False  # whether a source of these has not answered yet since the start
    node_missing: bool = False  # whether the Kubernetes API has no node of this name
    unfollowed: tuple[str, ...] = ()  # why requested objects of the Kubernetes API are not available
    release_objection: str = ""  # why the release file cannot be looked for; "" if it can, or is not used
    jobs: JobFiles | None = None  # None unless enabled by a setting
    nvidia_module: bool | None = None  # whether the kernel module of the NVIDIA driver is loaded
