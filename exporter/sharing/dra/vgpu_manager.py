"""vgpu-manager's DRA driver: NVIDIA's with shares of GPUs, which a library in the container limits.

A share is a claim of ``vgpu-<minor>``; its memory and cores are in the driver's checkpoint. All other device
names are those of NVIDIA's driver. The system has no meter: use is that of processes.
"""

import re
from functools import partial
from typing import ClassVar

from exporter.model import DeviceKey
from exporter.sharing.base import Read
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.view import View
from exporter.sharing.dra import NAMES, Dra
from exporter.sharing.dra.checkpoint import read_checkpoint
from exporter.sharing.dra.claims import NUMBER

VGPU_MANAGER_DRIVER = "manager.nvidia.com"
VGPU = re.compile(rf"vgpu-({NUMBER})")


class VgpuManagerDra(Dra):
    """Shares of GPUs, or what NVIDIA's driver gives."""

    name = "vgpu-manager-dra"
    driver = VGPU_MANAGER_DRIVER
    names = re.compile(f"{VGPU.pattern}|{NAMES.pattern}")
    isolation = "soft"
    read: ClassVar[Read | None] = staticmethod(partial(read_checkpoint, driver=VGPU_MANAGER_DRIVER))

    def __init__(self, view: View) -> None:
        super().__init__(view)
        listed = {claim.device for claim in view.listed_claims if claim.driver == self.driver}
        named = listed | {device for _, device in self._checkpoint.held()}
        self._shared = {int(match[1]) for name in named if (match := VGPU.fullmatch(name))}

    def find(self, name: str) -> Device | None:
        """Return the device with a name, the GPU of a share."""
        if (vgpu := VGPU.fullmatch(name)) is not None:
            return self.view.inventory.by_minor(int(vgpu[1]))
        return super().find(name)

    def meant_by_name(self, name: str) -> frozenset[DeviceKey]:
        """Return the parts of the GPU in a name."""
        return super().meant_by_name(name.removeprefix("v"))

    def limited(self, device: Device) -> bool:
        """Return True for a GPU that is claimed in shares; the driver gives no more of it in another way."""
        return device.mig is None and device.gpu.identity.minor in self._shared
