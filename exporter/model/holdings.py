"""Holdings: allocations resolved to devices, with their entitlements, and the files of sharing systems."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, TypeVar

from exporter.model.hardware import GpuIdentity
from exporter.model.kubelet import ContainerRef, HeldClaim

Number = TypeVar("Number", int, float)
K = TypeVar("K")
T = TypeVar("T")


def total(figures: Sequence[Number | None]) -> Number | None:
    """Return the sum, or None if one of the figures is unknown."""
    known = [figure for figure in figures if figure is not None]
    return sum(known) if len(known) == len(figures) else None


def only(candidates: Iterable[T]) -> T | None:
    """Return the only candidate, None if there is none or more than one."""
    first_two = list(islice(candidates, 2))
    return first_two[0] if len(first_two) == 1 else None


def unambiguous(values: Iterable[tuple[K | None, T]]) -> dict[K, T]:
    """Return values by key, without keys that several values have, or None."""
    by_key: dict[K, list[T]] = {}
    for key, value in values:
        if key is not None:
            by_key.setdefault(key, []).append(value)
    return {key: alike[0] for key, alike in by_key.items() if len(alike) == 1}


class DeviceKey(NamedTuple):
    """A device that a container can hold: a whole GPU (``mig_uuid`` is "") or one MIG device of it."""

    uuid: str
    mig_uuid: str = ""


class SliceCount(NamedTuple):
    """Slices of one resource on a device; None is unknown."""

    resource: str
    offered: int | None  # offered by the device plugin, healthy or not
    allocated: int | None  # None if a container holds some of the resource on an unknown device
    # Unhealthy slices are not allocated to pods; ``lost`` are those of them that no container holds.
    unhealthy: int | None = None
    lost: int | None = None
    # Slices of a GPU that the scheduler excludes from new pods, held or not; None if that is unknown.
    cordoned: int | None = None

    @property
    def withheld(self) -> int:
        """Slices that no container holds, and that new pods do not get: cordoned or unhealthy ones."""
        lost = self.lost or 0
        return max((self.cordoned or 0) - (self.allocated or 0), lost)

    @property
    def free(self) -> int | None:
        """Slices that can still be allocated; None if unknown."""
        if self.offered is None or self.allocated is None:
            return None
        return max(self.offered - self.allocated - self.withheld, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """Use of a holder as measured by its sharing system; it replaces the sums over processes.

    None was not metered, and the use is then unknown.
    """

    source: str  # name of the meter
    memory: int | None = None  # bytes
    compute: float | None = None  # share of the whole physical GPU
    # Whether the system never meters compute, so that compute is the sum over processes.
    memory_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """The part of one device that one container holds."""

    holder: ContainerRef
    device: DeviceKey
    resource: str
    slices: int  # distinct device ids
    memory_entitled: int | None  # bytes; None if unknown
    compute_entitled: float | None  # share of the whole physical GPU; None if unknown
    meter: Meter | None = None
    # Those of the system that granted it; "" for those of the device.
    sharing: str = ""
    isolation: str = ""
    # Whether another holding of the container already counts its slices of the device, in another unit.
    counted_elsewhere: bool = False
    claims: tuple[HeldClaim, ...] = ()  # the resource claims that it is by
    health: str = ""  # the worst health that the kubelet reports of its slices; "" if unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSharing:
    """The sharing mode of one device."""

    sharing: str = "unknown"
    isolation: str = ""  # ``hard``, ``soft`` or ``none``; "" if unknown
    exclusive: bool = False  # whether at most one container should hold it
    slices: tuple[SliceCount, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """All holdings of the node, sorted, with the sharing mode of every device."""

    # False until the kubelet has answered once: an empty list then does not mean that devices are free.
    known: bool
    holdings: tuple[Holding, ...] = ()
    devices: Mapping[DeviceKey, DeviceSharing] = field(default_factory=dict)
    # Allocated device ids that match no visible device, by resource, and the containers that hold one.
    unresolved: Mapping[str, int] = field(default_factory=dict)
    unresolved_holders: frozenset[ContainerRef] = frozenset()
    # DRA drivers that are not known here, and whose claims may be for GPUs.
    unknown_drivers: frozenset[str] = frozenset()
    # Devices that are held but that the exporter has no driver for, in stable order.
    unread: tuple[GpuIdentity, ...] = ()
    # Devices with unknown holders, and (device, resource) of which these hold an unknown number.
    unplaced: frozenset[DeviceKey] = frozenset()
    uncounted: frozenset[tuple[DeviceKey, str]] = frozenset()
    # Devices that new pods may get; None if the kubelet does not report allocatable ids.
    offered: frozenset[DeviceKey] | None = None
    # Those that an id on offer without a known device may mean.
    may_be_offered: frozenset[DeviceKey] = frozenset()
    # Those with ids that have left the offer since their plugin started.
    withdrawn: frozenset[DeviceKey] = frozenset()
    # Devices that a container should have alone, and another one holds too, with these containers.
    contested: Mapping[DeviceKey, tuple[ContainerRef, ...]] = field(default_factory=dict)
    # By sharing system in use, the facts that are unknown because pod annotations are not readable.
    blind: Mapping[str, str] = field(default_factory=dict)
    # Containers in the kubelet's list, with or without devices, and their pods, with container "".
    listed: frozenset[ContainerRef] = frozenset()
    all_listed: bool = True  # False if a running pod is not in the kubelet's list; it may hold any device


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Totals of a container on a device since it was first seen there.

    Peak, use, energy and last activity are None until the use has been measured once. The times are None
    without an allocation, and the measured ones 0 until then.
    """

    first_seen: float
    memory_peak: int | None = None  # bytes; the largest memory use of all polls
    # Time of the allocation, and the part of it in which memory use was known.
    held_seconds: float | None = None
    memory_measured_seconds: float | None = None
    entitled_gpu_seconds: float | None = None
    # Entitlement and use over the time in which both were known.
    measured_gpu_seconds: float | None = None
    measured_use_gpu_seconds: float | None = None
    used_gpu_seconds: float | None = None
    energy_joules: float | None = None
    # Unix time of the last compute use; until the first one, when monitoring began.
    last_active: float | None = None
    seen_computing: bool = False  # whether ``last_active`` is the time of a use


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDevices:
    """Devices for virtual machines, by the kubelet's device id in lower case."""

    # vGPUs: PCI address of the physical GPU, as in sysfs: ``0000:3b:00.0``.
    vgpus: Mapping[str, str] = field(default_factory=dict)
    # Mediated devices, by IOMMU group: UUID of the device.
    mdevs: Mapping[str, str] = field(default_factory=dict)
    # NVIDIA GPUs that can be passed through to a virtual machine.
    passed_through: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """One device in the file of a container.

    Memory is in bytes, compute in shares of the physical device. A limit of None is no limit, or unknown.
    """

    device: str  # its name in the file: a UUID, a PCI bus id, or a minor in digits
    memory_limit: int | None = None
    compute_limit: float | None = None
    memory_used: int | None = None
    compute_used: float | None = None
    memory_only: bool = False  # whether the compute use in the file is never plausible, and must be ignored


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFile:
    """The file of one container; its system identifies the container by some of the first four fields."""

    pod_uid: str = ""
    container: str = ""
    container_id: str = ""  # the runtime's 64 hex digits, or only the first of them
    claim_uid: str = ""  # UID of a resource claim
    devices: tuple[DeviceUse, ...] = ()
    # Processes in the host's pid namespace; None if the file does not list them.
    pids: tuple[int, ...] | None = None


class Problem(NamedTuple):
    """Something unreadable: a file, an annotation or a label."""

    reason: str  # one stable word, a label value
    about: str  # the name of the thing
    text: str  # what is wrong with it


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemFiles:
    """All files of one sharing system."""

    containers: tuple[ContainerFile, ...] = ()
    # Other facts in the files, in the system's own terms.
    names: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFiles:
    """The jobs of a batch system by GPU."""

    # By (GPU index, id of the GPU instance or None for the whole GPU).
    jobs: Mapping[tuple[int, int | None], tuple[str, ...]] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
