"""AMD's DRA driver: whole GPUs and partitions by resource claims.

A device is ``gpu-<card>-<render>``, by the numbers of its /dev/dri/cardN and /dev/dri/renderDN. The second is
that of one device only, whole or partition.
"""

import re

from exporter.sharing.claims import NUMBER, ClaimSystem
from exporter.sharing.inventory import Device

DRIVER = "gpu.amd.com"


class AmdDra(ClaimSystem):
    """AMD's driver, which keeps no notes that say whose a claim is."""

    name = "amd-dra"
    driver = DRIVER
    names = re.compile(f"gpu-{NUMBER}-{NUMBER}")

    def find(self, name: str) -> Device | None:
        """Find the GPU or partition of a render node."""
        minor = int(name.rpartition("-")[2])
        fitting = [each for each in self.view.inventory.devices if _render_minor(each) == minor]
        return fitting[0] if len(fitting) == 1 else None

    def mode_alone(self, device: Device) -> str:
        """Name the mode of a device that one container has."""
        return "exclusive" if device.mig is None else "amd-partition"


def _render_minor(device: Device) -> int | None:
    return device.mig.render_minor if device.mig is not None else device.gpu.identity.render_minor
