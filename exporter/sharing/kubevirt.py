"""NVIDIA vGPU under KubeVirt: mediated devices or virtual functions of GPUs for virtual machines.

The resource is named after the vGPU type (``nvidia.com/NVIDIA_A40-12Q``). Ids of NVIDIA's KubeVirt plugin are
mdev UUIDs and PCI addresses, those of KubeVirt itself IOMMU groups. Ids of NVIDIA's plugin for sandboxed
containers are IOMMU groups, or VFIO device numbers if the kernel has IOMMUFD.

NVML lists and meters a vGPU while its virtual machine runs; before that, only the kernel has its GPU
(``host_devices``, from sysfs). A vGPU has its own frame buffer. Its compute depends on the host's scheduler
and on other vGPUs, so that it has no stated share, unless the vGPU has a GPU instance to itself.

On newer hosts a vGPU is a virtual function of its GPU, which NVML does not identify: its holder is known, but
not its use. A GPU that is passed through as a whole is bound to another driver: its holder is known, but not
its use. It counts as unresolved.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from exporter.model import (
    Allocation,
    Allocations,
    ContainerRef,
    DeviceKey,
    DeviceSharing,
    GpuReading,
    HostDevices,
    Meter,
    VgpuReading,
    VgpuRow,
    only,
    total,
)
from exporter.sharing.base import Entitled, HeldSlices, Meaning, Offer, System, not_counted
from exporter.sharing.base.inventory import ANY_UUID, PCI_ADDRESS, Device, Inventory, pci_address
from exporter.sharing.base.view import View

PREFIX = "nvidia.com/"
# Python refuses to parse very long numbers.
IOMMU_GROUP = re.compile(r"[0-9]{1,9}")
NVIDIA = "0x10de"
PASSED_THROUGH = frozenset({"vfio-pci", "nvgrace_gpu_vfio_pci"})
METER = "vgpu"


def host_devices(sys_root: Path, allocations: Allocations | None) -> HostDevices:
    """Return the ids of devices for virtual machines; blocks. Reads no file if no id can be one."""
    named = {text: _device_of_id(sys_root, text) for text in _candidates(allocations)}
    gpus = {text: _gpu_of_device(sys_root, device) for text, device in named.items() if device}
    return HostDevices(
        vgpus={text: gpu for text, gpu in gpus.items() if gpu is not None},
        mdevs={text: name for text, name in named.items() if name != text and ANY_UUID.fullmatch(name)},
        passed_through=frozenset(
            text
            for text, device in named.items()
            if _is_whole(sys_root, device) or _is_whole(sys_root, _vfio(sys_root, text))
        ),
    )


def _candidates(allocations: Allocations | None) -> set[str]:
    if allocations is None:
        return set()
    held = ((resource, device_id) for _, resource, device_id in allocations.allocated)
    ids = chain(held, allocations.offered or ())
    return {device_id.lower() for resource, device_id in ids if resource.startswith(PREFIX)}


def _device_of_id(sys_root: Path, text: str) -> str:
    """Return the mdev UUID or PCI address of an id or of its IOMMU group; "" for any other id."""
    if ANY_UUID.fullmatch(text) or PCI_ADDRESS.fullmatch(text):
        return text
    if not IOMMU_GROUP.fullmatch(text):
        return ""
    try:
        members = [
            entry.name.lower() for entry in (sys_root / "kernel/iommu_groups" / text / "devices").iterdir()
        ]
    except OSError:
        return ""
    # A GPU's audio device may be in the group too, as a higher function.
    return min(members, default="")


def _vfio(sys_root: Path, text: str) -> str:
    """Return the PCI address of the VFIO device with this number, "" if there is none."""
    if not IOMMU_GROUP.fullmatch(text):
        return ""
    device = _linked(sys_root / f"class/vfio-dev/vfio{text}/device")
    return device.name.lower() if device is not None else ""


def _gpu_of_device(sys_root: Path, device: str) -> str | None:
    """Return the PCI address of a vGPU's physical GPU, None for any other device."""
    return _parent(sys_root, device) if ANY_UUID.fullmatch(device) else _parent_of_function(sys_root, device)


def _parent_of_function(sys_root: Path, address: str) -> str | None:
    """Return the PCI address of the GPU of a virtual function, if a vGPU was created on it."""
    function = sys_root / "bus/pci/devices" / address
    if _content(function / "nvidia/current_vgpu_type") in ("", "0"):
        return None
    gpu = _linked(function / "physfn")
    return gpu.name.lower() if gpu is not None and PCI_ADDRESS.fullmatch(gpu.name) else None


def _parent(sys_root: Path, mdev: str) -> str | None:
    """Return the PCI address of the GPU of a mediated device, which may be on a virtual function of it."""
    device = _linked(sys_root / "bus/mdev/devices" / mdev)
    if device is None:
        return None
    gpu = _linked(device.parent / "physfn") or device.parent
    return gpu.name.lower() if PCI_ADDRESS.fullmatch(gpu.name) else None


def _is_whole(sys_root: Path, address: str) -> bool:
    """Return True if this is a passed-through NVIDIA GPU; network cards have such ids too."""
    if not PCI_ADDRESS.fullmatch(address):
        return False
    device = sys_root / "bus/pci/devices" / address
    driver = _linked(device / "driver")
    passed_through = driver is not None and driver.name in PASSED_THROUGH
    return passed_through and _content(device / "vendor") == NVIDIA


def _linked(link: Path) -> Path | None:
    """Return the path that a link of sysfs leads to, None if it leads nowhere."""
    try:
        return link.resolve(strict=True)
    except (OSError, RuntimeError):
        return None


def _content(path: Path) -> str:
    """Return the text of a file of sysfs, "" if it cannot be read."""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


class NamedVgpu(NamedTuple):
    """The device of an id, and its vGPU."""

    device: Device
    vgpu: VgpuReading | None  # None until its virtual machine starts


class Vgpu(System):
    """vGPUs as mediated devices or virtual functions."""

    name = "vgpu"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._host = view.facts.host
        self._vgpus = _vgpus_by_id(view.inventory, self._host)
        # If an id of a resource has no known device, the number of slices of each GPU is unknown.
        self._uncounted = {
            resource
            for resource, ids in view.offered.items()
            if self.knows(resource)
            and any(
                ANY_UUID.fullmatch(device_id) and device_id.lower() not in self._vgpus for device_id in ids
            )
        }

    def knows(self, resource: str) -> bool:
        return resource.startswith(PREFIX)

    def meaning(self, resource: str, device_id: str) -> Meaning | None:
        """Return the GPU or MIG device of a vGPU; no device for a GPU that is passed through."""
        key = device_id.lower()
        if not resource.startswith(PREFIX):
            return None
        if key in self._vgpus:
            return Meaning(self._vgpus[key].device)
        host = self._host
        ours = ANY_UUID.fullmatch(key) or key in host.passed_through or key in host.vgpus
        return Meaning() if ours else None

    def may_be(self, device_id: str) -> frozenset[DeviceKey] | None:
        """Return the devices on the GPU of a vGPU; NVML does not list a GPU that is passed through."""
        key = device_id.lower()
        if key in self._host.passed_through:
            return frozenset()
        gpu = self._host.vgpus.get(key)
        return None if gpu is None else self.view.inventory.meant_by_bus_id(gpu)

    def sharing(self, _device: Device, offer: Offer) -> DeviceSharing:
        """Return the mode: vGPUs share the device, each with its own frame buffer."""
        counted = not_counted(offer.slices, self._uncounted)
        return DeviceSharing(sharing="vgpu", isolation="hard", slices=counted)

    def entitlement(self, device: Device, _sharing: DeviceSharing, held: HeldSlices) -> Entitled:
        """Return the frame buffer of the holder's vGPUs, and NVML's figures of their use."""
        ids = {key.lower() for key in self.view.held[held.holder][held.resource]}
        named = [self._vgpus[key] for key in ids if key in self._vgpus]
        vgpus = [found.vgpu for found in named if found.device.key == device.key]
        compute = _compute_entitled(device, len(vgpus))
        if not vgpus:
            return Entitled(compute=compute)
        memory = total([vgpu.memory_total if vgpu else None for vgpu in vgpus])
        return Entitled(memory, compute, _meter(vgpus))


def vgpu_rows(
    gpus: Collection[GpuReading], allocations: Allocations | None, host: HostDevices | None = None
) -> tuple[VgpuRow, ...]:
    """Return every running vGPU of this host, with the container that holds it.

    A vGPU has no holder if it is of a virtual machine outside Kubernetes, if it is a virtual function, or if
    the kubelet does not answer.
    """
    if not any(gpu.vgpus for gpu in gpus):
        return ()
    names = host.mdevs if host is not None else {}
    holders = _holders(allocations.allocated if allocations is not None else (), names)
    rows: list[VgpuRow] = []
    for gpu in sorted(gpus, key=lambda gpu: gpu.identity.index):
        for vgpu in gpu.vgpus or ():
            # Several while one container replaces another.
            candidates = {holder for name in _names(vgpu) for holder in holders.get(name, ())}
            rows.append(VgpuRow(uuid=gpu.identity.uuid, reading=vgpu, holder=only(candidates)))
    return tuple(rows)


def _vgpus_by_id(inventory: Inventory, host: HostDevices) -> dict[str, NamedVgpu]:
    """Return the device of every id, by NVML, or by sysfs until its virtual machine runs."""
    candidates: dict[str, list[NamedVgpu]] = defaultdict(list)
    for device in inventory.devices:
        for vgpu in device.gpu.vgpus or ():
            if device.mig is None or device.mig.gi == vgpu.gi:
                for name in _names(vgpu):
                    candidates[name].append(NamedVgpu(device, vgpu))
    # If compute instances share a GPU instance, it is unknown which of them backs the vGPU.
    running = {name: found[0] for name, found in candidates.items() if len(found) == 1}
    by_address = {
        pci_address(device.gpu.identity.pci_bus_id): device
        for device in inventory.devices
        if device.mig is None
    }
    waiting = {
        name: NamedVgpu(by_address[gpu], None)
        for name, gpu in host.vgpus.items()
        if gpu in by_address and host.mdevs.get(name, name) not in candidates
    }
    by_group = {group: running[mdev] for group, mdev in host.mdevs.items() if mdev in running}
    return running | waiting | by_group


def _names(vgpu: VgpuReading) -> set[str]:
    return {name.lower() for name in (vgpu.mdev_uuid, vgpu.uuid) if name}


def _compute_entitled(device: Device, held: int) -> float | None:
    """Return the share of a GPU instance with no other vGPU, None on shared engines."""
    mig = device.mig
    alone = mig is not None and held == sum(vgpu.gi == mig.gi for vgpu in device.gpu.vgpus or ())
    return device.compute if alone else None


def _meter(vgpus: list[VgpuReading | None]) -> Meter:
    percent = total([vgpu.sm_percent if vgpu else None for vgpu in vgpus])
    return Meter(
        source=METER,
        memory=total([vgpu.memory_used if vgpu else None for vgpu in vgpus]),
        compute=None if percent is None else percent / 100,
    )


def _holders(allocated: Iterable[Allocation], names: Mapping[str, str]) -> dict[str, set[ContainerRef]]:
    holders: dict[str, set[ContainerRef]] = defaultdict(set)
    for allocation in allocated:
        if allocation.resource.startswith(PREFIX):
            name = allocation.device_id.lower()
            holders[names.get(name, name)].add(allocation.holder)
    return holders
