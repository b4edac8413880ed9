"""The result of the join of one poll: the rows that all pages and formats show.

Units are base units: bytes, seconds, joules, and ratios of a whole physical GPU.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Literal, NamedTuple

from exporter.model.balances import Balances
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
from exporter.model.holdings import DeviceKey, SliceCount, Totals
from exporter.model.kubelet import ContainerRef, HeldClaim
from exporter.model.memory_limits import Backend
from exporter.model.mig_profiles import MigProfiles
from exporter.model.readings import ClockEvent, VgpuReading

# What can be wrong with a GPU: see ``exporter.model.conditions``.
Condition = Literal[
    "lost",
    "needs_reset",
    "needs_reboot",
    "replace_board",
    "uncorrected_memory_errors",
    "throttled_by_heat_or_power",
    "link_degraded",
    "driver_released",
]
READ_VENDORS = frozenset({"nvidia", "amd"})  # vendors with GPUs that the exporter reads
ADVICE_LABEL = "gpuslice-exporter/advice"  # label of a pod; with the value ``off`` there is no advice on it
ProcessWhere = Literal["pod", "host", "unknown"]
MOST_PROCESSES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """A condition that a GPU has."""

    since: float  # Unix time at which it began, or was first observed
    causes: tuple[str, ...]  # one phrase for each input that raises it


class Disagreement(NamedTuple):
    """How far two figures of the driver disagree on who computed on a GPU; shares of what was computed."""

    share: float
    explained: float  # the most that is explained by how the driver makes both figures


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRow:
    """A container on a device that it holds, uses, or both."""

    holder: ContainerRef  # without ``container`` if the containers of the pod cannot be distinguished
    device: DeviceKey
    resource: str = ""
    sharing: str = ""
    isolation: str = "none"
    pod_uid: str = ""
    model: str = ""
    # 0: it uses the device without holding it. None: the row is the use of a pod as a whole.
    slices: int | None = None
    memory_entitled: int | None = None
    compute_entitled: float | None = None
    memory_used: int | None = None
    compute_used: float | None = None
    processes: int | None = None
    memory_source: str = "none"
    compute_source: str = "none"
    claims: tuple[HeldClaim, ...] = ()  # the resource claims by which it holds the device, sorted
    # The worst health of its slices of the device, in the kubelet's words; "" if the kubelet reports none.
    health: str = ""
    totals: Totals | None = None
    # What its cgroup meters and the limits in force, in bytes; of devices without MIG. The backend is "" if
    # nothing meters cgroups, the soft limit None if no limit is set.
    limit_backend: Backend | Literal[""] = ""
    memory_charged: int | None = None
    memory_guaranteed: int | None = None  # soft limit
    memory_limit: int | None = None  # hard limit; it may be one for several containers together
    memory_limit_above: bool = False  # whether that is of a cgroup above the container's own


@dataclass(frozen=True, slots=True, kw_only=True)
class MigRow:
    """A MIG device with its slices, holders and use."""

    device: DeviceKey
    reading: MigReading
    slices: tuple[SliceCount, ...] = ()
    holders: int | None = None
    unattributed_memory: int | None = None
    # Shares of the whole physical GPU; None if not metered.
    compute_used: float | None = None
    unattributed_utilization: float | None = None
    jobs: tuple[str, ...] = ()  # jobs of a batch system on the device


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRow:
    """A physical GPU with its slices, holders and use, including its MIG devices."""

    identity: GpuIdentity
    reading: GpuReading | None  # None if only the identity is known
    sharing: str = "unknown"
    slices: tuple[SliceCount, ...] = ()
    holders: int | None = None
    memory_entitled: int | None = None
    unattributed_memory: int | None = None
    unattributed_utilization: float | None = None
    unattributed_energy_joules: float | None = None  # a counter
    # Between samples and accounting of processes; None without accounting, and if a poll could not compare.
    disagreement: Disagreement | None = None
    # Compute slices.
    mig_slices_used: int | None = None
    mig_slices_free: int | None = None
    # Memory slices; ``mig_memory_adjacent`` is the longest run of free ones.
    mig_memory_used: int | None = None
    mig_memory_free: int | None = None
    mig_memory_adjacent: int | None = None
    # Whether the exporter is subscribed to its events, so that a code absent from ``events`` did not occur.
    watched: bool = False
    events: tuple[EventCount, ...] = ()
    # Times that each reason started to limit the clocks, as observed from poll to poll.
    clock_events: Mapping[ClockEvent, int] = field(default_factory=dict)
    # What is wrong with it, and what is not; an absent condition is unknown.
    conditions: Mapping[Condition, bool] = field(default_factory=dict)
    raised: Mapping[Condition, Raised] = field(default_factory=dict)  # those that are true
    # Over all NVLinks and both directions, between the last two sweeps.
    nvlink_bytes_per_second: float | None = None
    jobs: tuple[str, ...] = ()  # jobs of a batch system on the GPU as a whole
    balances: Balances | None = None  # its time since it was first listed, by class

    @property
    def unread(self) -> bool:
        """Whether the exporter has no driver for the device, so that only its holders are known."""
        return self.reading is None and self.identity.vendor not in READ_VENDORS


@dataclass(frozen=True, slots=True, kw_only=True)
class VgpuRow:
    """A vGPU that runs on a GPU of this host."""

    uuid: str  # UUID of the physical GPU
    reading: VgpuReading
    holder: ContainerRef | None = None  # the pod of its virtual machine


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRow:
    """A pod that holds or uses a device, with its selected labels and that of advice, by name."""

    namespace: str
    name: str
    uid: str
    labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRow:
    """A process with a context on a device; a process has one row for each device."""

    device: DeviceKey
    pid: int
    # The kernel's short name of the process, which its owner can choose; None if unreadable.
    command: str | None = None
    kinds: frozenset[ProcessKind] = frozenset()
    # None if the pod's name is unknown; without ``container`` if its containers cannot be distinguished.
    holder: ContainerRef | None = None
    memory: int | None = None
    compute: float | None = None  # share of the whole physical GPU
    place: ProcessWhere = "unknown"  # whether it runs in a pod, in none, or unknown


def largest_processes(
    rows: Iterable[ProcessRow], most: int = MOST_PROCESSES
) -> tuple[tuple[ProcessRow, ...], int]:
    """Return up to ``most`` rows, the largest ones, by device and pid; and the number of rows left out."""
    every = list(rows)
    # The pid decides between equals, so that the same rows stay from poll to poll.
    largest = nlargest(most, every, key=lambda row: (row.memory or 0, row.compute or 0.0, -row.pid))
    return tuple(sorted(largest, key=lambda row: (*row.device, row.pid))), len(every) - len(largest)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """An event of a device, with the containers that held the device when it was observed."""

    event: DeviceEvent
    holders: tuple[ContainerRef, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorHealth:
    """The health of one source."""

    name: str
    success: bool
    duration: float | None = None
    last_success: float | None = None  # Unix time
    errors: Mapping[str, int] = field(default_factory=dict)  # failures since start, by reason
    # The current problem and its remedy in one sentence, with its key in ``errors``; "" if there is none.
    message: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """The node as a whole."""

    name: str
    driver: DriverInfo | None = None
    gpu_count: int | None = None  # None while the driver does not answer
    # Whether per-process use can be attributed, and why not.
    process_view: bool = False
    process_view_reason: str = ""
    allocations_read_at: float | None = None  # Unix time
    # Running pods that the kubelet has not listed since its start; None if it does not answer.
    unlisted_pods: int | None = None
    mig_profiles: Mapping[str, MigProfiles] = field(default_factory=dict)  # by model of GPUs with a MIG mode
    costs: Mapping[str, Cost] = field(default_factory=dict)  # by group of readings
    released: str = ""  # why the driver is released; "" while it is in use
    # Allocated device ids that match no visible device, by resource.
    unresolved: Mapping[str, int] = field(default_factory=dict)
    # DRA drivers that are not known here, and whose claims may be for GPUs; these count as unresolved.
    unknown_drivers: frozenset[str] = frozenset()
    # Devices that a container should have alone, and another one holds too, with these containers.
    contested: Mapping[DeviceKey, tuple[ContainerRef, ...]] = field(default_factory=dict)
    # By sharing system, the facts that are unknown because pod annotations are not readable.
    blind: Mapping[str, str] = field(default_factory=dict)
    nvml_errors: Mapping[tuple[str, str, str], int] = field(default_factory=dict)  # by (uuid, call, error)
    # By (uuid, mig_uuid, quantity).
    inconsistent: Mapping[tuple[str, str, str], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state of the node after one poll, in stable order."""

    timestamp: float  # Unix time
    sequence: int  # number of the poll; 0 before the first one
    node: NodeRow
    gpus: tuple[GpuRow, ...] = ()
    migs: tuple[MigRow, ...] = ()
    vgpus: tuple[VgpuRow, ...] = ()
    containers: tuple[ContainerRow, ...] = ()
    pods: tuple[PodRow, ...] = ()  # pods with selected labels
    # The largest processes of the devices, and the number of those left out.
    processes: tuple[ProcessRow, ...] = ()
    processes_left_out: int = 0
    events: tuple[EventRow, ...] = ()  # the newest events, oldest first
    collectors: tuple[CollectorHealth, ...] = ()
    demo: bool = False
