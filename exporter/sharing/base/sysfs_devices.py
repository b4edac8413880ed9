"""What the kernel knows of device ids that no driver of a running GPU lists.

A vGPU exists for the driver from when its virtual machine starts, as a mediated device of its GPU from
before; on newer hosts it is a virtual function of its GPU instead, which the driver does not name. A GPU that
was passed through to a virtual machine is no longer the driver's at all.

NVIDIA's plugin has UUIDs and PCI addresses for ids, KubeVirt itself the IOMMU groups that they are in. For
sandboxed containers NVIDIA has another plugin, whose ids are IOMMU groups, or numbers of VFIO devices where
the kernel has IOMMUFD.
"""

import re
from pathlib import Path

from exporter.model import Allocations, HostDevices

PREFIX = "nvidia.com/"
MDEV_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)
# Python refuses to read very long numbers, and no group has one.
IOMMU_GROUP = re.compile(r"[0-9]{1,9}")
NVIDIA = "0x10de"
PASSED_THROUGH = frozenset({"vfio-pci", "nvgrace_gpu_vfio_pci"})


def host_devices(sys_root: Path, allocations: Allocations | None) -> HostDevices:
    """Look up the ids that may be devices for virtual machines; without such ids, no file is read."""
    named = {
        text: _named(sys_root, text) for text in {device_id.lower() for device_id in _candidates(allocations)}
    }
    gpus = {text: _gpu(sys_root, device) for text, device in named.items() if device}
    return HostDevices(
        vgpus={text: gpu for text, gpu in gpus.items() if gpu is not None},
        mdevs={
            text: device for text, device in named.items() if device != text and MDEV_UUID.fullmatch(device)
        },
        passed_through=frozenset(
            text
            for text, device in named.items()
            if _is_whole(sys_root, device) or _is_whole(sys_root, _vfio(sys_root, text))
        ),
    )


def _candidates(allocations: Allocations | None) -> set[str]:
    if allocations is None:
        return set()
    held = {
        allocation.device_id for allocation in allocations.allocated if allocation.resource.startswith(PREFIX)
    }
    offered = allocations.offered or ()
    return held | {device.device_id for device in offered if device.resource.startswith(PREFIX)}


def _named(sys_root: Path, text: str) -> str:
    """Return the device that an id names: itself, or the one in the IOMMU group; "" for any other id."""
    if MDEV_UUID.fullmatch(text) or PCI_ADDRESS.fullmatch(text):
        return text
    if not IOMMU_GROUP.fullmatch(text):
        return ""
    try:
        members = [
            entry.name.lower() for entry in (sys_root / "kernel/iommu_groups" / text / "devices").iterdir()
        ]
    except OSError:
        return ""
    # A GPU may have its sound beside it, as the function behind its own.
    return min(members, default="")


def _vfio(sys_root: Path, text: str) -> str:
    """Return the PCI device that is a VFIO device of this number, "" where none is."""
    if not IOMMU_GROUP.fullmatch(text):
        return ""
    try:
        return (sys_root / f"class/vfio-dev/vfio{text}/device").resolve(strict=True).name.lower()
    except (OSError, RuntimeError):
        return ""


def _gpu(sys_root: Path, device: str) -> str | None:
    """Return the PCI address of the physical GPU of a vGPU, None for what is none."""
    return _parent(sys_root, device) if MDEV_UUID.fullmatch(device) else _parent_of_function(sys_root, device)


def _parent_of_function(sys_root: Path, address: str) -> str | None:
    """Return the PCI address of the GPU of a virtual function that a type of vGPU has been made of."""
    function = sys_root / "bus/pci/devices" / address
    try:
        has_vgpu_type = (function / "nvidia/current_vgpu_type").read_text().strip() not in ("", "0")
        gpu = (function / "physfn").resolve(strict=True)
    except (OSError, RuntimeError, UnicodeDecodeError):
        return None
    return gpu.name.lower() if has_vgpu_type and PCI_ADDRESS.fullmatch(gpu.name) else None


def _parent(sys_root: Path, mdev: str) -> str | None:
    """Return the PCI address of the GPU of a mediated device, which may sit on a virtual function of it."""
    link = sys_root / "bus/mdev/devices" / mdev
    try:
        function = link.resolve(strict=True).parent
        physical = function / "physfn"
        gpu = physical.resolve(strict=True) if physical.exists() else function
    except (OSError, RuntimeError):
        return None
    return gpu.name.lower() if PCI_ADDRESS.fullmatch(gpu.name) else None


def _is_whole(sys_root: Path, address: str) -> bool:
    """Return whether this is a GPU that is passed through; network cards have such ids too."""
    if not PCI_ADDRESS.fullmatch(address):
        return False
    device = sys_root / "bus/pci/devices" / address
    try:
        vendor = (device / "vendor").read_text().strip()
        driver = (device / "driver").resolve(strict=True).name
    except (OSError, RuntimeError, UnicodeDecodeError):
        return False
    return vendor == NVIDIA and driver in PASSED_THROUGH
