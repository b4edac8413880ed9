"""Who is entitled to what: the kubelet's allocations once they are resolved to devices of this node."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from exporter.model.hardware import GpuIdentity
from exporter.model.kubelet import ContainerRef
from exporter.model.snapshot import DeviceKey, SliceCount


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """What a sharing system itself measured of a holder: it is taken in place of the processes' sums.

    ``memory`` is in bytes, ``compute`` in shares of the whole physical GPU; ``source`` names the meter. A
    part that is None was not metered, and is then not known. ``memory_only``: compute is never metered by
    this system, and is what the processes tell.
    """

    source: str
    memory: int | None = None
    compute: float | None = None
    memory_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What one container holds of one device.

    ``slices`` counts distinct device ids. ``memory_entitled`` is in bytes, ``compute_entitled`` in shares
    of the whole physical GPU; None where the sharing system or the kubelet does not tell. ``sharing`` and
    ``isolation`` are those of the system that gave it; "" where they are the device's. ``beside``: another
    holding of the same container counts its slices of the device, in another unit.
    """

    holder: ContainerRef
    device: DeviceKey
    resource: str
    slices: int
    memory_entitled: int | None
    compute_entitled: float | None
    meter: Meter | None = None
    sharing: str = ""
    isolation: str = ""
    beside: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSharing:
    """How one device is shared. ``exclusive``: at most one container is meant to hold it.

    ``isolation`` is ``hard``, ``soft`` or ``none``: what keeps holders apart; "" where it is not known.
    """

    sharing: str = "unknown"
    isolation: str = ""
    exclusive: bool = False
    slices: tuple[SliceCount, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """All holdings of the node, sorted, with the mode of every device.

    ``known`` is False while the kubelet has never answered: nobody can then be said to hold nothing.
    ``unresolved`` counts the allocated ids that match no visible device, by resource;
    ``unresolved_holders`` are the containers that hold one. ``unread`` are devices that are held here and
    that no driver of ours reads, in stable order. ``unplaced`` are devices with holders that are not known.
    ``listed`` are the containers in the kubelet's list, with devices or without, and their pods, with "" as
    container. With ``all_listed`` False some pod that runs is not among them, and may hold any device.
    ``blind`` says, by system that is at work here, what is not
    known for want of the pods' annotations.
    """

    known: bool
    holdings: tuple[Holding, ...] = ()
    devices: Mapping[DeviceKey, DeviceSharing] = field(default_factory=dict)
    unresolved: Mapping[str, int] = field(default_factory=dict)
    unresolved_holders: frozenset[ContainerRef] = frozenset()
    unread: tuple[GpuIdentity, ...] = ()
    unplaced: frozenset[DeviceKey] = frozenset()
    blind: Mapping[str, str] = field(default_factory=dict)
    listed: frozenset[ContainerRef] = frozenset()
    all_listed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDevices:
    """Devices for virtual machines, by the kubelet's ids in lower case.

    ``vgpus`` maps those of vGPUs to the PCI address of the physical GPU, as sysfs spells it:
    ``0000:3b:00.0``; ``mdevs`` maps those that are IOMMU groups of mediated devices to the UUID of the
    device. ``passed_through`` are NVIDIA devices that a virtual machine can have whole.
    """

    vgpus: Mapping[str, str] = field(default_factory=dict)
    mdevs: Mapping[str, str] = field(default_factory=dict)
    passed_through: frozenset[str] = frozenset()
