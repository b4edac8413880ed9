"""What one poll has read of each source, and the names that collectors and failures have."""

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
"""Reason of a collector whose source has not answered in time."""
POLL_FAILED: Final = "poll_failed"
"""Reason of every collector while the poll itself fails, so that nothing they have read is shown."""
NO_PROCESS_LISTS: Final = "no_process_lists"
"""Reason code: no device of the node reports its processes."""
NVIDIA_MODULE: Final = "module/nvidia/version"
"""Below the root of sysfs; it exists while the kernel has the NVIDIA driver's module."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PollResult:
    """What a snapshot is made of; None is a source that has not answered.

    ``gpus`` are those that can be shown, ``hardware`` is what the drivers say of the node as a whole.
    ``files`` are those of sharing systems, by system; ``own_uid`` is the uid of our own pod, "" in none.
    ``objects_from`` is the source of the labels and annotations of pods, "" where there is none, and
    ``unfollowed`` says why the Kubernetes API does not tell what it was asked for.
    ``unlisted`` are running pods that the kubelet has not listed since it was started, None if it does not
    answer; with ``covered`` False some of them may hold any device.
    ``confirmed``: the kubelet has told the allocations in this poll. ``late`` are the uuids of the GPUs that
    were read after the poll before and before this one.
    ``jobs`` are asked for by a setting. ``nvidia_module`` is whether the kernel has that driver's module.
    """

    gpus: tuple[GpuReading, ...] = ()
    hardware: HardwareReading | None = None
    allocations: Allocations | None = None
    unlisted: frozenset[PodName] | None = frozenset()
    covered: bool = True
    confirmed: bool = True
    late: frozenset[str] = frozenset()
    workloads: Workloads | None = None
    host_devices: HostDevices | None = None
    node: NodeObject | None = None
    files: Mapping[str, SystemFiles] = field(default_factory=dict)
    own_uid: str = ""
    objects_from: str = ""
    unfollowed: tuple[str, ...] = ()
    jobs: JobFiles | None = None
    nvidia_module: bool | None = None
