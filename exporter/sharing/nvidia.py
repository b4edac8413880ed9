"""NVIDIA's device plugin (and GKE's): exclusive GPUs, time-slicing, MPS, MIG, and MIG with time-slicing.

A device id says which device it is and whether it is given out in replicas; how many replicas there are is
what the kubelet says is allocatable. Who enforces the shares is told by the device: MPS puts it into the
exclusive-process compute mode and its clients stand in a list of their own.
"""

import re
from collections.abc import Iterable

from exporter.model import ContainerRef, DeviceSharing, Holding, SliceCount
from exporter.sharing.device_id import parse_device_id
from exporter.sharing.inventory import Device
from exporter.sharing.system import Claim, System
from exporter.sharing.view import View

RESOURCES = re.compile(r"nvidia\.com/(gpu|mig-[^/]+?)(\.shared)?")
# MPS sets the memory limit of a client in whole mebibytes.
MEBIBYTE = 1 << 20


class Resources:
    """Which resources are NVIDIA's: the plugin's own names, and those that match an extra pattern."""

    def __init__(self, patterns: Iterable[re.Pattern[str]] = ()) -> None:
        self._patterns = (RESOURCES, *patterns)

    def named(self, resource: str) -> bool:
        """Whether the resource's name says that its ids are NVIDIA devices."""
        return any(pattern.fullmatch(resource) for pattern in self._patterns)


class Nvidia(System):
    """NVIDIA's plugin and GKE's. A resource under any other name counts where its id is a device's UUID.

    Plugins can be told to rename their resources; the patterns of the settings match those.
    """

    name = "nvidia"
    vendor = "nvidia"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._resources = Resources(view.facts.patterns)

    def claim(self, resource: str, device_id: str) -> Claim | None:
        """Find the device of an id in any spelling of these plugins."""
        named = self._resources.named(resource)
        found = parse_device_id(device_id)
        device = self.view.inventory.find(found) if found is not None and (named or found.uuid) else None
        if device is not None and found is not None:
            return Claim(device, bool(found.replica))
        return Claim() if named else None

    def sharing(
        self, device: Device, slices: tuple[SliceCount, ...], replicated: bool, offered_known: bool
    ) -> DeviceSharing:
        """Tell time-slicing, MPS, MIG and whole GPUs apart."""
        return device_sharing(device, slices, replicated, offered_known)

    def holding(
        self, device: Device, sharing: DeviceSharing, resource: str, holder: ContainerRef, slices: int
    ) -> Holding:
        """State the device, or its replicas' share of it."""
        return holding(device, sharing, resource, holder, slices)


def device_sharing(
    device: Device, slices: tuple[SliceCount, ...], replicated: bool, offered_known: bool
) -> DeviceSharing:
    """Tell the mode of a device and what keeps its holders apart."""
    if not slices and device.mig is None and device.gpu.virtualization == "vgpu_host":
        return DeviceSharing(sharing="vgpu", isolation="hard")
    if device.mig is not None:
        mode, isolation = ("mig-time-slicing", "none") if replicated else ("mig", "hard")
    elif not slices:
        mode, isolation = ("none", "none") if offered_known and device.gpu.up else ("unknown", "")
    elif not replicated:
        mode, isolation = "exclusive", "hard"
    elif device.gpu.processes is None and device.gpu.compute_mode is None:
        # Nothing is left that would tell MPS from time-slicing.
        mode, isolation = "unknown", ""
    else:
        mode, isolation = ("mps", "soft") if _serves_mps(device) else ("time-slicing", "none")
    exclusive = not replicated and isolation == "hard"
    return DeviceSharing(sharing=mode, isolation=isolation, exclusive=exclusive, slices=slices)


def _serves_mps(device: Device) -> bool:
    clients = any("mps" in process.kinds for process in device.gpu.processes or ())
    return clients or device.gpu.compute_mode == "exclusive_process"


def holding(
    device: Device, sharing: DeviceSharing, resource: str, holder: ContainerRef, slices: int
) -> Holding:
    """State what a container is entitled to: the device, or its replicas' share of it.

    The share is enforced by MPS and only notional on time-slicing, where a replica guarantees nothing.
    """
    replicas = 1 if sharing.exclusive else _offered(sharing, resource)
    known = replicas is not None and replicas >= slices
    return Holding(
        holder=holder,
        device=device.key,
        resource=resource,
        slices=slices,
        memory_entitled=_memory(device, sharing, slices, replicas) if known and replicas else None,
        compute_entitled=_compute(device, slices, replicas) if known and replicas else None,
    )


def _offered(sharing: DeviceSharing, resource: str) -> int | None:
    return next((count.offered for count in sharing.slices if count.resource == resource), None)


def _memory(device: Device, sharing: DeviceSharing, slices: int, replicas: int) -> int | None:
    reading = device.mig if device.mig is not None else device.gpu
    shared = device.mig is not None and device.mig.memory_shared
    if reading.memory is None or shared:
        return None
    if sharing.sharing == "mps":
        return reading.memory.total // replicas // MEBIBYTE * MEBIBYTE * slices
    return reading.memory.total * slices // replicas


def _compute(device: Device, slices: int, replicas: int) -> float | None:
    if device.mig is None:
        return slices / replicas
    if device.mig.compute_slices is None or not device.gpu.mig_slices:
        return None
    return device.mig.compute_slices * slices / (device.gpu.mig_slices * replicas)
