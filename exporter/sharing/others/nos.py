"""nos of nebuly: slices of GPU memory by MPS, with its fork of NVIDIA's device plugin.

An id is ``<UUID of the GPU>::<GB>::<n>``. The plugin limits each process to ``<GB>G`` of memory, which MPS
reads as GiB. Its partitioner counts a GB for every 1000 MiB, so that the slices of a GPU may exceed its
memory. Compute is not limited.
"""

import re

from exporter.model import DeviceSharing
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.system import GIBIBYTE, Claim, Entitled, HeldSlices, System

MARK = "::"
_ID = re.compile(r"(GPU-[^:]{1,80})::([1-9][0-9]{0,5})::[0-9]{1,9}")


class Nos(System):
    """Slices of memory. MIG devices that nos makes belong to NVIDIA's plugin."""

    name = "nos"
    isolation = "soft"

    def owns(self, _resource: str, device_id: str) -> bool:
        """Return True if an id has three parts, which only ids of this plugin have."""
        return device_id.startswith("GPU-") and device_id.count(MARK) == 2

    def claim(self, resource: str, device_id: str) -> Claim | None:
        """Return the GPU of a slice."""
        if not self.owns(resource, device_id):
            return None
        match = _ID.fullmatch(device_id)
        if match is None:
            self.view.object_to(self.name, "id", resource, f"{device_id[:100]!r} is not UUID::GB::number")
            return Claim()
        return Claim(self.view.inventory.by_uuid(match[1]), replica=True)

    def entitlement(self, device: Device, _sharing: DeviceSharing, held: HeldSlices) -> Entitled:
        """Return the memory of the holder's slices."""
        matches = map(_ID.fullmatch, self.view.held[held.holder][held.resource])
        sizes = (int(match[2]) for match in matches if match and match[1] == device.key.uuid)
        return Entitled(sum(sizes) * GIBIBYTE)
