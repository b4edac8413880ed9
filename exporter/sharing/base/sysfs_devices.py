"""Devices for virtual machines, by device id, from sysfs: NVML does not list them all.

NVML lists a vGPU only while its virtual machine runs; the kernel has its mediated device before that. On
newer hosts a vGPU is a virtual function of its GPU instead, which NVML does not identify. A GPU passed
through to a virtual machine is bound to another driver.

Ids of NVIDIA's KubeVirt plugin are mdev UUIDs and PCI addresses, those of KubeVirt itself IOMMU groups. Ids
of NVIDIA's plugin for sandboxed containers are IOMMU groups, or VFIO device numbers if the kernel has
IOMMUFD.
"""

import re
from itertools import chain
from pathlib import Path

from exporter.model import Allocations, HostDevices

PREFIX = "nvidia.com/"
MDEV_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)
# Python refuses to parse very long numbers.
IOMMU_GROUP = re.compile(r"[0-9]{1,9}")
NVIDIA = "0x10de"
PASSED_THROUGH = frozenset({"vfio-pci", "nvgrace_gpu_vfio_pci"})


def host_devices(sys_root: Path, allocations: Allocations | None) -> HostDevices:
    """Return the ids of devices for virtual machines; blocks. Reads no file if no id can be one."""
    named = {text: _device(sys_root, text) for text in _candidates(allocations)}
    gpus = {text: _gpu(sys_root, device) for text, device in named.items() if device}
    return HostDevices(
        vgpus={text: gpu for text, gpu in gpus.items() if gpu is not None},
        mdevs={text: name for text, name in named.items() if name != text and MDEV_UUID.fullmatch(name)},
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


def _device(sys_root: Path, text: str) -> str:
    """Return the mdev UUID or PCI address of an id or of its IOMMU group; "" for any other id."""
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
    # A GPU's audio device may be in the group too, as a higher function.
    return min(members, default="")


def _vfio(sys_root: Path, text: str) -> str:
    """Return the PCI address of the VFIO device with this number, "" if there is none."""
    if not IOMMU_GROUP.fullmatch(text):
        return ""
    try:
        return (sys_root / f"class/vfio-dev/vfio{text}/device").resolve(strict=True).name.lower()
    except (OSError, RuntimeError):
        return ""


def _gpu(sys_root: Path, device: str) -> str | None:
    """Return the PCI address of a vGPU's physical GPU, None for any other device."""
    return _parent(sys_root, device) if MDEV_UUID.fullmatch(device) else _parent_of_function(sys_root, device)


def _parent_of_function(sys_root: Path, address: str) -> str | None:
    """Return the PCI address of the GPU of a virtual function, if a vGPU was created on it."""
    function = sys_root / "bus/pci/devices" / address
    try:
        has_vgpu_type = (function / "nvidia/current_vgpu_type").read_text().strip() not in ("", "0")
        gpu = (function / "physfn").resolve(strict=True)
    except (OSError, RuntimeError, UnicodeDecodeError):
        return None
    return gpu.name.lower() if has_vgpu_type and PCI_ADDRESS.fullmatch(gpu.name) else None


def _parent(sys_root: Path, mdev: str) -> str | None:
    """Return the PCI address of the GPU of a mediated device, which may be on a virtual function of it."""
    link = sys_root / "bus/mdev/devices" / mdev
    try:
        function = link.resolve(strict=True).parent
        physical = function / "physfn"
        gpu = physical.resolve(strict=True) if physical.exists() else function
    except (OSError, RuntimeError):
        return None
    return gpu.name.lower() if PCI_ADDRESS.fullmatch(gpu.name) else None


def _is_whole(sys_root: Path, address: str) -> bool:
    """Return True if this is a passed-through NVIDIA GPU; network cards have such ids too."""
    if not PCI_ADDRESS.fullmatch(address):
        return False
    device = sys_root / "bus/pci/devices" / address
    try:
        vendor = (device / "vendor").read_text().strip()
        driver = (device / "driver").resolve(strict=True).name
    except (OSError, RuntimeError, UnicodeDecodeError):
        return False
    return vendor == NVIDIA and driver in PASSED_THROUGH
