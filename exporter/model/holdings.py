"""Holdings: the kubelet's allocations, resolved to devices of this node, with their entitlements."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from exporter.model.hardware import GpuIdentity
from exporter.model.kubelet import ContainerRef, HeldClaim
from exporter.model.snapshot import DeviceKey, SliceCount


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """Use of a holder as measured by its sharing system; it replaces the sums over processes.

    None was not metered, and the use is then unknown.
    """

    # Name of the meter.
    source: str
    # Bytes.
    memory: int | None = None
    # Share of the whole physical GPU.
    compute: float | None = None
    # Whether the system never meters compute, so that compute is the sum over processes.
    memory_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """The part of one device that one container holds."""

    holder: ContainerRef
    device: DeviceKey
    resource: str
    # Distinct device ids.
    slices: int
    # Bytes; None if unknown.
    memory_entitled: int | None
    # Share of the whole physical GPU; None if unknown.
    compute_entitled: float | None
    meter: Meter | None = None
    # Those of the system that granted it; "" for those of the device.
    sharing: str = ""
    isolation: str = ""
    # Whether another holding of the container already counts its slices of the device, in another unit.
    counted_elsewhere: bool = False
    # The resource claims that it is by.
    claims: tuple[HeldClaim, ...] = ()
    # The worst health that the kubelet reports of its slices; "" if unknown.
    health: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSharing:
    """The sharing mode of one device."""

    sharing: str = "unknown"
    # ``hard``, ``soft`` or ``none``; "" if unknown.
    isolation: str = ""
    # Whether at most one container should hold it.
    exclusive: bool = False
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
    # Devices that are held but that the exporter has no driver for, in stable order.
    unread: tuple[GpuIdentity, ...] = ()
    # Devices with unknown holders.
    unplaced: frozenset[DeviceKey] = frozenset()
    # By sharing system in use, the facts that are unknown because pod annotations are not readable.
    blind: Mapping[str, str] = field(default_factory=dict)
    # Containers in the kubelet's list, with or without devices, and their pods, with container "".
    listed: frozenset[ContainerRef] = frozenset()
    # False if a running pod is not in the kubelet's list; it may hold any device.
    all_listed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDevices:
    """Devices for virtual machines, by the kubelet's device id in lower case."""

    # vGPUs: PCI address of the physical GPU, as in sysfs: ``0000:3b:00.0``.
    vgpus: Mapping[str, str] = field(default_factory=dict)
    # Mediated devices, by IOMMU group: UUID of the device.
    mdevs: Mapping[str, str] = field(default_factory=dict)
    # NVIDIA GPUs that can be passed through to a virtual machine.
    passed_through: frozenset[str] = frozenset()
