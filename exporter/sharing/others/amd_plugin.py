"""AMD's device plugin: whole GPUs, and partitions of MI300 and later GPUs.

The id of a whole GPU or of the first partition is its PCI address (``0000:19:00.0``), that of further
partitions their platform device (``amdgpu_xcp_4``). A device has one holder; the hardware isolates compute
units and memory of partitions.
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
        """Return True if a resource belongs to the plugin."""
        return RESOURCES.fullmatch(resource) is not None

    def claim(self, resource: str, device_id: str) -> Claim | None:
        """Return the partition or whole GPU of an id."""
        if not RESOURCES.fullmatch(resource):
            return None
        # A PCI address in the form that readings have.
        match = PCI_ADDRESS.fullmatch(device_id)
        bus_id = f"{match[1].upper():0>8}:{match[2].upper()}:{match[3].upper()}.{match[4]}" if match else ""
        return Claim(
            next((device for device in self.view.inventory.devices if _is(device, device_id, bus_id)), None)
        )

    def sharing(self, device: Device, offer: Offer) -> DeviceSharing:
        """Return the mode of a whole GPU or partition, which have at most one holder."""
        if device.mig is not None or offer.slices:
            mode = "exclusive" if device.mig is None else "amd-partition"
            return DeviceSharing(sharing=mode, isolation="hard", exclusive=True, slices=offer.slices)
        if offer.known and device.gpu.up:
            return DeviceSharing(sharing="none", isolation="none")
        return DeviceSharing()

    def entitlement(self, device: Device, _sharing: DeviceSharing, _held: HeldSlices) -> Entitled:
        """Return the memory of the device, and its share of the GPU's compute units."""
        return Entitled(device.memory, device.compute)


def _is(device: Device, device_id: str, bus_id: str) -> bool:
    identity = device.gpu.identity
    if identity.vendor != Amd.vendor:
        return False
    return identity.pci_bus_id == bus_id if device.mig is None else device.mig.uuid == device_id
