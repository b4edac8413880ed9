"""What the join makes of one poll: the rows that every reader shows.

Units are base units: bytes, seconds, joules, and ratios where 1 is a whole physical GPU.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from exporter.model.hardware import (
    Cost,
    DeviceEvent,
    DriverInfo,
    EventCount,
    GpuIdentity,
    GpuReading,
    MigReading,
    ProcessKind,
)
from exporter.model.kubelet import ContainerRef
from exporter.model.readings import ClockEvent, VgpuReading


class DeviceKey(NamedTuple):
    """What a container can hold: a whole GPU (``mig_uuid`` is "") or one MIG device of it."""

    uuid: str
    mig_uuid: str = ""


class SliceCount(NamedTuple):
    """Slices of one resource on a device.

    ``offered`` are all that its plugin has cut, None if that is unknown; ``allocated`` is None if somebody
    holds some of the resource and nobody says on which device. ``unhealthy`` slices can be given to nobody,
    and ``lost`` are those of them that nobody holds; both are None if that is unknown.
    """

    resource: str
    offered: int | None
    allocated: int | None
    unhealthy: int | None = None
    lost: int | None = None

    @property
    def free(self) -> int | None:
        """Return how many slices can still be given out, None if that is unknown."""
        if self.offered is None or self.allocated is None:
            return None
        return max(self.offered - self.allocated - (self.lost or 0), 0)


READ_VENDORS = frozenset({"nvidia", "amd"})
"""Whose GPUs this program has a driver for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What has been integrated over the life of a container on a device.

    ``used_gpu_seconds``, ``energy_joules`` and ``last_active`` are None until the use was measured once.
    ``seen_computing``: it was seen computing at ``last_active``, which else is since when it is watched.
    ``measured_gpu_seconds`` is what of ``entitled_gpu_seconds`` went by while the use was measured, and
    ``measured_use_gpu_seconds`` what was used in that time: while entitlement and use were both known.
    """

    first_seen: float
    entitled_gpu_seconds: float | None = None
    measured_gpu_seconds: float | None = None
    measured_use_gpu_seconds: float | None = None
    used_gpu_seconds: float | None = None
    energy_joules: float | None = None
    last_active: float | None = None
    seen_computing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRow:
    """A container on a device that it holds, uses, or both.

    ``slices`` 0: it uses the device without holding any of it. ``slices`` None: the use of a pod whose
    containers cannot be told apart (``holder.container`` is "").
    """

    holder: ContainerRef
    device: DeviceKey
    resource: str = ""
    sharing: str = ""
    isolation: str = "none"
    pod_uid: str = ""
    model: str = ""
    slices: int | None = None
    memory_entitled: int | None = None
    compute_entitled: float | None = None
    memory_used: int | None = None
    compute_used: float | None = None
    processes: int | None = None
    memory_source: str = "none"
    compute_source: str = "none"
    totals: Totals | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MigRow:
    """A MIG device with what is held on it.

    ``compute_used`` is its used share of the whole physical GPU where something meters it, and
    ``unattributed_utilization`` what of that belongs to no known container. ``jobs`` are those that a batch
    system says it runs there.
    """

    device: DeviceKey
    reading: MigReading
    slices: tuple[SliceCount, ...] = ()
    holders: int | None = None
    unattributed_memory: int | None = None
    compute_used: float | None = None
    unattributed_utilization: float | None = None
    jobs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRow:
    """A physical GPU with what is held on it and on its MIG devices.

    ``reading`` is None where only the name is known. ``unattributed_energy_joules`` counts. ``watched``: its
    events are waited for, so that a code that is not among ``events`` did not occur. ``clock_events`` counts
    how often each reason began to hold the clocks back, as seen from poll to poll.
    ``nvlink_bytes_per_second`` is the traffic over all NVLinks, both directions, between the last two sweeps.
    ``jobs`` are those that a batch system says it runs there. ``mig_slices_…`` count compute slices,
    ``mig_memory_…`` memory slices; ``mig_memory_adjacent`` is the longest run of free ones beside each other.
    """

    identity: GpuIdentity
    reading: GpuReading | None
    sharing: str = "unknown"
    slices: tuple[SliceCount, ...] = ()
    holders: int | None = None
    memory_entitled: int | None = None
    unattributed_memory: int | None = None
    unattributed_utilization: float | None = None
    unattributed_energy_joules: float | None = None
    mig_slices_used: int | None = None
    mig_slices_free: int | None = None
    mig_memory_used: int | None = None
    mig_memory_free: int | None = None
    mig_memory_adjacent: int | None = None
    watched: bool = False
    events: tuple[EventCount, ...] = ()
    clock_events: Mapping[ClockEvent, int] = field(default_factory=dict)
    nvlink_bytes_per_second: float | None = None
    jobs: tuple[str, ...] = ()

    @property
    def unread(self) -> bool:
        """Whether no driver of ours reads the device, so that only who holds it is known."""
        return self.reading is None and self.identity.vendor not in READ_VENDORS


@dataclass(frozen=True, slots=True, kw_only=True)
class VgpuRow:
    """A vGPU that runs on the GPU ``uuid`` of this host; ``holder`` is the pod of its virtual machine."""

    uuid: str
    reading: VgpuReading
    holder: ContainerRef | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRow:
    """A pod that holds or uses a device here, with those of its labels that are to be shown, by name."""

    namespace: str
    name: str
    uid: str
    labels: tuple[tuple[str, str], ...]


ProcessWhere = Literal["pod", "host", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRow:
    """A process with a context on a device; one with contexts on several devices has a row for each.

    ``command`` is the kernel's short name of it, which its owner can choose; None where it could not be read.
    ``place`` says whether it runs in a pod, in none, or cannot be placed. ``holder`` is None where that pod
    has no known name, and has no ``container`` where the pod's containers cannot be told apart. ``memory`` is
    in bytes, ``compute`` its used share of the whole physical GPU.
    """

    device: DeviceKey
    pid: int
    command: str | None = None
    kinds: frozenset[ProcessKind] = frozenset()
    holder: ContainerRef | None = None
    memory: int | None = None
    compute: float | None = None
    place: ProcessWhere = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """An event of a device with the containers that held the device when it was noticed."""

    event: DeviceEvent
    holders: tuple[ContainerRef, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorHealth:
    """How one source is doing. ``last_success`` is Unix time; ``errors`` counts by reason since start.

    ``message`` says in one sentence what is wrong and what to do, and ``reason`` is the word among those of
    ``errors`` by which that is counted; both are "" while all is well.
    """

    name: str
    success: bool
    duration: float | None = None
    last_success: float | None = None
    errors: Mapping[str, int] = field(default_factory=dict)
    message: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """The node as a whole. ``unresolved`` counts allocated ids that match no visible device, by resource.

    ``gpu_count`` is None while the driver does not answer. ``nvml_errors`` counts by (uuid, call, error),
    ``inconsistent`` by (uuid, mig_uuid, quantity). ``allocations_read_at`` is Unix time. ``unlisted_pods``
    counts running pods that the kubelet has not listed since it was started, None if it does not answer.
    ``costs`` is what each group of the driver's readings has cost; ``released`` says why the driver was given
    up for a while.
    ``blind`` says, by sharing system, what is not known for want of the pods' annotations.
    """

    name: str
    driver: DriverInfo | None = None
    gpu_count: int | None = None
    process_view: bool = False
    process_view_reason: str = ""
    allocations_read_at: float | None = None
    unlisted_pods: int | None = None
    costs: Mapping[str, Cost] = field(default_factory=dict)
    released: str = ""
    unresolved: Mapping[str, int] = field(default_factory=dict)
    blind: Mapping[str, str] = field(default_factory=dict)
    nvml_errors: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    inconsistent: Mapping[tuple[str, str, str], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything one poll found, in stable order. ``timestamp`` is Unix time in seconds.

    ``pods`` are those with labels to show; ``events`` are the newest, oldest first. ``processes`` are those
    of the devices, none where the host's cannot be seen; ``processes_left_out`` counts those that were too
    many to be kept.
    """

    timestamp: float
    sequence: int
    node: NodeRow
    gpus: tuple[GpuRow, ...] = ()
    migs: tuple[MigRow, ...] = ()
    vgpus: tuple[VgpuRow, ...] = ()
    containers: tuple[ContainerRow, ...] = ()
    pods: tuple[PodRow, ...] = ()
    processes: tuple[ProcessRow, ...] = ()
    processes_left_out: int = 0
    events: tuple[EventRow, ...] = ()
    collectors: tuple[CollectorHealth, ...] = ()
    demo: bool = False
