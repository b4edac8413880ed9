"""AMD's device plugin: whole GPUs, and the partitions that MI300 and later GPUs can be cut into.

A whole GPU and the first partition of one are named by their PCI address (``0000:19:00.0``), every further
partition by its device of its own (``amdgpu_xcp_4``). There are no replicas: a device has one holder, and
a process in a partition reaches neither the compute units nor the memory of another.
"""

import re

from exporter.model import DeviceSharing
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.system import Claim, Entitled, HeldSlices, Offer, System

# Other plugins of the same vendor have resources under amd.com too, such as network cards.
RESOURCES = re.compile(r"amd\.com/(?:gpu|[a-z]px_nps[0-9]+)")
PCI_ADDRESS = re.compile(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")


class Amd(System):
    """AMD's own plugin."""

    name = "amd"
    vendor = "amd"

    def knows(self, resource: str) -> bool:
        """Whether a resource is one of the plugin's."""
        return RESOURCES.fullmatch(resource) is not None

    def claim(self, resource: str, device_id: str) -> Claim | None:
        """Find the partition of a name, or the whole GPU of a PCI address."""
        if not RESOURCES.fullmatch(resource):
            return None
        # A PCI address in the form that readings have.
        match = PCI_ADDRESS.fullmatch(device_id)
        bus_id = f"{match[1].upper():0>8}:{match[2].upper()}:{match[3].upper()}.{match[4]}" if match else ""
        return Claim(
            next((device for device in self.view.inventory.devices if _is(device, device_id, bus_id)), None)
        )

    def sharing(self, device: Device, offer: Offer) -> DeviceSharing:
        """Return the mode of a whole GPU or of a partition; both have one holder at most."""
        if device.mig is not None or offer.slices:
            mode = "exclusive" if device.mig is None else "amd-partition"
            return DeviceSharing(sharing=mode, isolation="hard", exclusive=True, slices=offer.slices)
        if offer.known and device.gpu.up:
            return DeviceSharing(sharing="none", isolation="none")
        return DeviceSharing()

    def entitlement(self, device: Device, _sharing: DeviceSharing, _held: HeldSlices) -> Entitled:
        """Return the whole device: all of its memory, and its share of the GPU's compute units."""
        return Entitled(device.memory, device.compute)


def _is(device: Device, device_id: str, bus_id: str) -> bool:
    identity = device.gpu.identity
    if identity.vendor != Amd.vendor:
        return False
    return identity.pci_bus_id == bus_id if device.mig is None else device.mig.uuid == device_id
