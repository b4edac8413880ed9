"""What the kernel knows of device ids that no driver of a running GPU lists.

A vGPU exists for the driver from when its virtual machine starts, as a mediated device of its GPU from
before; a GPU that was passed through to a virtual machine is no longer the driver's at all.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from exporter.model import Allocations

PREFIX = "nvidia.com/"
MDEV_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)
NVIDIA = "0x10de"
PASSED_THROUGH = frozenset({"vfio-pci", "nvgrace_gpu_vfio_pci"})


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDevices:
    """Devices for virtual machines, by the kubelet's ids in lower case.

    ``mdevs`` maps the UUID of a mediated device to the PCI address of its physical GPU, ``passed_through``
    are the PCI addresses of NVIDIA devices that a virtual machine can have whole; addresses as sysfs spells
    them: ``0000:3b:00.0``.
    """

    mdevs: Mapping[str, str] = field(default_factory=dict)
    passed_through: frozenset[str] = frozenset()


def host_devices(sys_root: Path, allocations: Allocations | None) -> HostDevices:
    """Look up the ids that may be devices for virtual machines; without such ids, no file is read."""
    ids = {device_id.lower() for device_id in _candidates(allocations)}
    parents = {text: _parent(sys_root, text) for text in ids if MDEV_UUID.fullmatch(text)}
    addresses = {text for text in ids if PCI_ADDRESS.fullmatch(text)}
    return HostDevices(
        mdevs={mdev: parent for mdev, parent in parents.items() if parent is not None},
        passed_through=frozenset(text for text in addresses if _is_passed_through(sys_root, text)),
    )


def _candidates(allocations: Allocations | None) -> set[str]:
    if allocations is None:
        return set()
    held = {each.device_id for each in allocations.allocated if each.resource.startswith(PREFIX)}
    offered = allocations.offered or ()
    return held | {each.device_id for each in offered if each.resource.startswith(PREFIX)}


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


def _is_passed_through(sys_root: Path, address: str) -> bool:
    """Tell a GPU from other devices: plugins of network cards have such ids under this name, too."""
    device = sys_root / "bus/pci/devices" / address
    try:
        vendor = (device / "vendor").read_text().strip()
        driver = (device / "driver").resolve(strict=True).name
    except (OSError, RuntimeError, UnicodeDecodeError):
        return False
    return vendor == NVIDIA and driver in PASSED_THROUGH
