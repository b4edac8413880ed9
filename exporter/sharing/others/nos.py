"""nos of nebuly: GPUs that its fork of the device plugin cuts by memory, through MPS.

An id is ``<UUID of the GPU>::<GB>::<n>``. The plugin limits each process to so many ``G`` of memory, which
MPS reads as GiB. Its partitioner takes a GPU to have a GB for every 1000 MiB, so that the slices of a GPU may
add up to more than it has. Of compute, nothing is promised.
"""

import re

from exporter.model import DeviceSharing
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.system import Claim, Entitled, HeldSlices, System

MARK = "::"
GIBIBYTE = 1 << 30
_ID = re.compile(r"(GPU-[^:]{1,80})::([1-9][0-9]{0,5})::[0-9]{1,9}")


class Nos(System):
    """The slices of memory of one poll. MIG devices that nos makes are those of NVIDIA's plugin."""

    name = "nos"
    isolation = "soft"

    def owns(self, _resource: str, device_id: str) -> bool:
        """Whether an id has the three parts that no other plugin's have."""
        return device_id.startswith("GPU-") and device_id.count(MARK) == 2

    def claim(self, resource: str, device_id: str) -> Claim | None:
        """Find the GPU of a slice."""
        if not self.owns(resource, device_id):
            return None
        match = _ID.fullmatch(device_id)
        if match is None:
            self.view.object_to(self.name, "id", resource, f"{device_id[:100]!r} is not UUID::GB::number")
            return Claim()
        return Claim(self.view.inventory.by_uuid(match[1]), replica=True)

    def entitlement(self, device: Device, _sharing: DeviceSharing, held: HeldSlices) -> Entitled:
        """Return the memory of the holder's slices."""
        ids = [
            match
            for device_id in self.view.held[held.holder][held.resource]
            if (match := _ID.fullmatch(device_id))
        ]
        return Entitled(sum(int(match[2]) * GIBIBYTE for match in ids if match[1] == device.key.uuid))
