"""The devices that can be held on this node, found by any name that a device id can use."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from exporter.model import DeviceKey, GpuReading, MigReading

REPLICA_MARK = "::"
# No number of a device is longer than nine digits; Python refuses to read very long ones.
LEGACY_MIG = re.compile(r"MIG-(GPU-[^/]+)/([0-9]{1,9})/([0-9]{1,9})")
GKE = re.compile(r"nvidia([0-9]{1,9})(?:/gi([0-9]{1,9}))?(?:/vgpu([0-9]+))?")
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
REPLICA = re.compile(r"[0-9]+")


@dataclass(frozen=True, slots=True)
class DeviceId:
    """What an id names: a UUID (GPU or MIG), a legacy MIG triple, or a minor with its GPU instance.

    ``replica`` is "" for an id without one: the device is then given out as a whole.
    """

    uuid: str = ""
    parent: str = ""
    gi: int | None = None
    ci: int | None = None
    minor: int | None = None
    replica: str = ""


def parse_device_id(text: str) -> DeviceId | None:
    """Return what the id names, or None for a spelling that no NVIDIA plugin uses."""
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
        return DeviceId(uuid=f"GPU-{device}", replica=replica)
    return None


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU without MIG, or one MIG device of a GPU."""

    key: DeviceKey
    gpu: GpuReading
    mig: MigReading | None = None

    @property
    def memory(self) -> int | None:
        """All memory of the device in bytes; None of what shares its memory with others, or does not tell."""
        if self.mig is not None and self.mig.memory_shared:
            return None
        reading = self.mig if self.mig is not None else self.gpu
        return reading.memory.total if reading.memory is not None else None

    @property
    def compute(self) -> float | None:
        """The share of the physical GPU's compute that the device is, None where that is not told."""
        if self.mig is None:
            return 1.0
        slices, of = self.mig.compute_slices, self.gpu.mig_slices
        return slices / of if slices is not None and of else None


class Inventory:
    """All devices of one poll. A GPU in MIG mode is no device itself: its MIG devices are."""

    def __init__(self, gpus: Iterable[GpuReading]) -> None:
        readings = tuple(gpus)
        self.gpu_uuids = frozenset(gpu.identity.uuid for gpu in readings)
        self.devices = tuple(device for gpu in readings for device in _devices(gpu))
        self.keys = frozenset(device.key for device in self.devices)
        self._by_uuid = {device.key.mig_uuid or device.key.uuid: device for device in self.devices}
        self._by_minor = _numbered((device.gpu.identity.minor, device) for device in self.whole())
        self._by_index = _numbered((device.gpu.identity.index, device) for device in self.whole())

    def by_uuid(self, uuid: str) -> Device | None:
        """Return the device of a UUID, which is spelled as the driver does."""
        return self._by_uuid.get(uuid)

    def by_minor(self, minor: int) -> Device | None:
        """Return the GPU without MIG that is /dev/nvidia<minor>."""
        return self._by_minor.get(minor)

    def by_index(self, index: int) -> Device | None:
        """Return the GPU without MIG of an index of NVML, which is not its minor on every node."""
        return self._by_index.get(index)

    def by_bus_id(self, bus_id: str) -> Device | None:
        """Return the GPU without MIG of a PCI address in any usual spelling."""
        wanted = pci_address(bus_id)
        return _one(
            device for device in self.whole() if pci_address(device.gpu.identity.pci_bus_id) == wanted
        )

    def parts_of(self, device_id: DeviceId) -> frozenset[DeviceKey]:
        """Return the MIG devices of a GPU that is cut and that an id names as a whole."""
        named = replace(device_id, parent=device_id.uuid)
        cut = (device for device in self.devices if device.mig is not None)
        return frozenset(device.key for device in cut if _fits(Device(device.key, device.gpu), named))

    def cards(self) -> frozenset[DeviceKey]:
        """Return the GPUs of NVIDIA that are not cut: what plugins give out parts of."""
        return frozenset(device.key for device in self.whole())

    def whole(self) -> Iterator[Device]:
        """List the GPUs of NVIDIA that are not cut, which these numbers are about."""
        return (
            device for device in self.devices if device.mig is None and device.gpu.identity.vendor == "nvidia"
        )

    def find(self, device_id: DeviceId) -> Device | None:
        """Return the one device that an id names; None if there is none, or if several fit."""
        if device_id.uuid in self._by_uuid:
            return self._by_uuid[device_id.uuid]
        return _one(device for device in self.devices if _fits(device, device_id))


def pci_address(text: str) -> str:
    """Return a PCI address as in sysfs (``0000:3b:00.0``): the driver's domain has eight digits."""
    domain, _, rest = text.lower().partition(":")
    return f"{domain.lstrip('0'):0>4}:{rest}"


def _numbered(devices: Iterable[tuple[int | None, Device]]) -> dict[int, Device]:
    """Find devices by their number, where no other one has it."""
    by_number: dict[int, list[Device]] = {}
    for number, device in devices:
        if number is not None:
            by_number.setdefault(number, []).append(device)
    return {number: numbered[0] for number, numbered in by_number.items() if len(numbered) == 1}


def _one(devices: Iterable[Device]) -> Device | None:
    candidates = list(devices)
    return candidates[0] if len(candidates) == 1 else None


def _devices(gpu: GpuReading) -> list[Device]:
    uuid = gpu.identity.uuid
    if not gpu.mig_enabled:
        return [Device(DeviceKey(uuid), gpu)]
    return [Device(DeviceKey(uuid, mig.uuid), gpu, mig) for mig in gpu.mig or ()]


def _fits(device: Device, device_id: DeviceId) -> bool:
    """Compare by parent or minor and instance; an id without an instance means a whole GPU."""
    identity = device.gpu.identity
    if device_id.parent:
        same_gpu = identity.uuid == device_id.parent
    else:
        same_gpu = device_id.minor is not None and identity.minor == device_id.minor
    gi, ci = (device.mig.gi, device.mig.ci) if device.mig is not None else (None, None)
    return same_gpu and gi == device_id.gi and (device_id.ci is None or ci == device_id.ci)
