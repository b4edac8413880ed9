"""The devices of this node that containers can hold, by all forms of names and device ids."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from exporter.model import DeviceKey, DeviceProcess, GpuReading, MigReading, only, unambiguous
from exporter.model.mig_geometry import compute_part

REPLICA_MARK = "::"
# Device numbers have at most nine digits; Python refuses to parse very long ones.
LEGACY_MIG = re.compile(r"MIG-(GPU-[^/]+)/([0-9]{1,9})/([0-9]{1,9})")
GKE = re.compile(r"nvidia([0-9]{1,9})(?:/gi([0-9]{1,9}))?(?:/vgpu([0-9]+))?")
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
ANY_UUID = re.compile(UUID.pattern, re.IGNORECASE)
PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)
# The ids of NVIDIA's plugin for the GPU of a node with one GPU: on Jetson, and in WSL.
THE_GPU = frozenset({"tegra", "all"})
REPLICA = re.compile(r"[0-9]+")


@dataclass(frozen=True, slots=True)
class DeviceId:
    """A parsed device id: a UUID (GPU or MIG), a legacy MIG triple, a minor, or the only GPU of the node."""

    uuid: str = ""  # with its prefix
    parent: str = ""  # UUID of the GPU in a legacy MIG triple
    gi: int | None = None
    ci: int | None = None
    minor: int | None = None
    the_gpu: bool = False  # whichever GPU the node has
    replica: str = ""  # "" if the device is allocated whole


def parse_device_id(text: str) -> DeviceId | None:
    """Return the parsed id, or None for a form that no NVIDIA plugin uses.

    ``GPU-<uuid>``, ``MIG-<uuid>``, ``MIG-GPU-<uuid>/<gi>/<ci>``, a bare UUID, ``tegra`` or ``all``, each
    optionally followed by ``::<replica>``; GKE's ``nvidia<minor>``, optionally followed by ``/gi<gi>`` and
    ``/vgpu<replica>``.
    """
    if (gke := GKE.fullmatch(text)) is not None:
        minor, gi, replica = gke.groups()
        return DeviceId(minor=int(minor), gi=None if gi is None else int(gi), replica=replica or "")
    device, mark, replica = text.partition(REPLICA_MARK)
    if mark and not REPLICA.fullmatch(replica):
        return None
    if (legacy := LEGACY_MIG.fullmatch(device)) is not None:
        parent, gi, ci = legacy.groups()
        return DeviceId(uuid=device, parent=parent, gi=int(gi), ci=int(ci), replica=replica)
    if device.startswith(("GPU-", "MIG-")) and "/" not in device:
        return DeviceId(uuid=device, replica=replica)
    if UUID.fullmatch(device):
        return DeviceId(uuid=with_prefix(device), replica=replica)
    return DeviceId(the_gpu=True, replica=replica) if device in THE_GPU else None


def with_prefix(uuid: str) -> str:
    """Return the UUID of a GPU with the prefix that NVML leaves out on Jetson."""
    return f"GPU-{uuid}" if UUID.fullmatch(uuid) else uuid


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU without MIG, or one MIG device of a GPU."""

    key: DeviceKey
    gpu: GpuReading
    mig: MigReading | None = None

    @property
    def memory(self) -> int | None:
        """The device's memory in bytes; None if it is unknown or shared with other compute instances."""
        if self.mig is not None and self.mig.memory_shared:
            return None
        reading = self.mig if self.mig is not None else self.gpu
        return reading.memory.total if reading.memory is not None else None

    @property
    def processes(self) -> tuple[DeviceProcess, ...] | None:
        """The processes on the device, None if unknown."""
        return self.gpu.processes if self.mig is None else self.mig.processes

    @property
    def has_mps_clients(self) -> bool:
        """Whether a process on the device is known to use it through MPS."""
        return any("mps" in process.kinds for process in self.processes or ())

    @property
    def compute(self) -> float | None:
        """The device's share of the physical GPU's compute, None if it is unknown."""
        return 1.0 if self.mig is None else compute_part(self.gpu, self.mig)


class Inventory:
    """All devices of one poll: GPUs without MIG, and MIG devices. A GPU in MIG mode is not a device."""

    def __init__(self, gpus: Iterable[GpuReading]) -> None:
        readings = tuple(gpus)
        self.gpu_uuids = frozenset(gpu.identity.uuid for gpu in readings)
        self.devices = tuple(device for gpu in readings for device in _devices(gpu))
        self.keys = frozenset(device.key for device in self.devices)
        self._by_uuid = {with_prefix(dev.key.mig_uuid or dev.key.uuid): dev for dev in self.devices}
        nvidia = (gpu.identity.uuid for gpu in readings if gpu.identity.vendor == "nvidia")
        self._the_gpu = with_prefix(only(nvidia) or "")
        self._by_minor = unambiguous((device.gpu.identity.minor, device) for device in self.whole())
        self._by_index = unambiguous((device.gpu.identity.index, device) for device in self.whole())

    def by_uuid(self, uuid: str) -> Device | None:
        return self._by_uuid.get(with_prefix(uuid))

    def by_minor(self, minor: int) -> Device | None:
        """Return the GPU without MIG that is ``/dev/nvidia<minor>``."""
        return self._by_minor.get(minor)

    def by_index(self, index: int) -> Device | None:
        """Return the GPU without MIG with this NVML index, which may differ from its minor."""
        return self._by_index.get(index)

    def by_bus_id(self, bus_id: str) -> Device | None:
        """Return the GPU without MIG at a PCI address in any usual form."""
        wanted = pci_address(bus_id)
        return only(gpu for gpu in self.whole() if pci_address(gpu.gpu.identity.pci_bus_id) == wanted)

    def parts_of(self, device_id: DeviceId) -> frozenset[DeviceKey]:
        """Return the MIG devices of a partitioned GPU that an id names as a whole.

        An id that names the GPU of the node may mean any device of a node with several.
        """
        if device_id.the_gpu and not self._the_gpu:
            nvidia = (device for device in self.devices if device.gpu.identity.vendor == "nvidia")
            return frozenset(device.key for device in nvidia)
        named = replace(device_id, parent=self._the_gpu if device_id.the_gpu else device_id.uuid)
        migs = (device for device in self.devices if device.mig is not None)
        return frozenset(mig.key for mig in migs if _fits(Device(mig.key, mig.gpu), named))

    def meant_by_uuid(self, uuid: str) -> frozenset[DeviceKey]:
        """Return the devices that a text with a GPU's UUID may mean if none has it: parts of that GPU."""
        bare = ((device.key, device.key.uuid.removeprefix("GPU-")) for device in self.devices)
        return frozenset(key for key, of_gpu in bare if of_gpu and of_gpu in uuid)

    def meant_by_minor(self, minor: int) -> frozenset[DeviceKey]:
        """Return the devices that a minor may mean if no GPU has it, also GPUs of unknown minor."""
        nvidia = (device for device in self.devices if device.gpu.identity.vendor == "nvidia")
        return frozenset(device.key for device in nvidia if device.gpu.identity.minor in (minor, None))

    def meant_by_bus_id(self, bus_id: str) -> frozenset[DeviceKey]:
        """Return the devices that a PCI address may mean if none has it: parts of the GPU there."""
        wanted = pci_address(bus_id)
        return frozenset(
            device.key for device in self.devices if pci_address(device.gpu.identity.pci_bus_id) == wanted
        )

    def meant_by_id(self, device_id: str) -> frozenset[DeviceKey] | None:
        """Return the devices that an id of a plugin may mean if it is of none; None if it may be any.

        An id with the UUID or PCI address of a GPU means that GPU, or a part of it.
        """
        parsed = parse_device_id(device_id)
        if parsed is not None and parsed.minor is not None:
            return self.meant_by_minor(parsed.minor)
        if PCI_ADDRESS.fullmatch(device_id):
            return self.meant_by_bus_id(device_id)
        parts = self.meant_by_uuid(device_id)
        of_another = ANY_UUID.search(device_id) or (parsed is not None and not parsed.the_gpu)
        return parts if parts or of_another else None

    def whole(self) -> Iterator[Device]:
        """Yield the NVIDIA GPUs without MIG, which minors and indexes refer to."""
        gpus = (device for device in self.devices if device.mig is None)
        return (gpu for gpu in gpus if gpu.gpu.identity.vendor == "nvidia")

    def find(self, device_id: DeviceId | None) -> Device | None:
        """Return the device that an id names; None for no id, or if no device fits, or several."""
        if device_id is None:
            return None
        if device_id.the_gpu:
            return self._by_uuid.get(self._the_gpu)
        if device_id.uuid in self._by_uuid:
            return self._by_uuid[device_id.uuid]
        return only(device for device in self.devices if _fits(device, device_id))


def pci_address(text: str) -> str:
    """Return a PCI address as in sysfs (``0000:3b:00.0``); the driver's domain has eight digits."""
    domain, _, rest = text.lower().partition(":")
    return f"{domain.lstrip('0'):0>4}:{rest}"


def _devices(gpu: GpuReading) -> list[Device]:
    uuid = gpu.identity.uuid
    if not gpu.mig_enabled:
        return [Device(DeviceKey(uuid), gpu)]
    return [Device(DeviceKey(uuid, mig.uuid), gpu, mig) for mig in gpu.mig or ()]


def _fits(device: Device, device_id: DeviceId) -> bool:
    """Return True if parent or minor, and instances are equal; an id without instance names a whole GPU."""
    identity = device.gpu.identity
    if device_id.parent:
        same_gpu = with_prefix(identity.uuid) == device_id.parent
    else:
        same_gpu = device_id.minor is not None and identity.minor == device_id.minor
    gi, ci = (device.mig.gi, device.mig.ci) if device.mig is not None else (None, None)
    return same_gpu and gi == device_id.gi and (device_id.ci is None or ci == device_id.ci)
