"""nvshare: containers take turns on a whole GPU, each with the full memory.

An id is the UUID of the GPU and a number. Holders have no limits, and so no entitlement. The plugin itself
gets the GPU from NVIDIA's plugin, to share it: it is not a holder.
"""

import re
from itertools import chain

from exporter.model import ContainerRef, DeviceSharing
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.system import Claim, Granted, Offer, System, words_of
from exporter.sharing.base.view import View

MARK = "__"
ID = re.compile(r"(GPU-[^/:]{1,64})__[0-9]{1,9}")
PLUGIN = "nvshare-device-plugin"
REPLICA_MARK = "::"


class Nvshare(System):
    """Holders by id."""

    name = "nvshare"
    isolation = "none"
    words = words_of(PLUGIN)

    def __init__(self, view: View) -> None:
        super().__init__(view)
        held = (device_id for _, _, device_id in view.allocations.allocated)
        offered = (device_id for _, device_id in view.allocations.offered or ())
        # Filtered first, because other plugins have tens of thousands of ids.
        own = (device_id for device_id in chain(held, offered) if MARK in device_id)
        self._shared = {match[1] for device_id in own if (match := ID.fullmatch(device_id))}

    def owns(self, _resource: str, device_id: str) -> bool:
        """Return True if an id has the form of this system."""
        return ID.fullmatch(device_id) is not None

    def grants(self) -> Granted:
        """Settle the ids that the plugin holds for others."""
        return Granted(settled=frozenset(self._of_plugin()))

    def claim(self, _resource: str, device_id: str) -> Claim | None:
        """Return the GPU of an id, also of an id of NVIDIA's plugin for a GPU that nvshare shares."""
        if (match := ID.fullmatch(device_id)) is not None:
            return Claim(self.view.inventory.by_uuid(match[1]), replica=True)
        if not self._shared or (uuid := _uuid(device_id)) not in self._shared:
            return None
        return Claim(self.view.inventory.by_uuid(uuid))

    def sharing(self, _device: Device, offer: Offer) -> DeviceSharing:
        """Return the mode; slices of the resource that the plugin itself holds are not counted."""
        taken = {resource for _, resource in self._of_plugin()}
        counted = tuple(
            count._replace(offered=None) if count.resource in taken else count for count in offer.slices
        )
        return DeviceSharing(sharing=self.name, isolation=self.isolation, slices=counted)

    def _of_plugin(self) -> set[tuple[ContainerRef, str]]:
        return {
            (holder, resource)
            for holder, by_resource in self.view.held.items()
            for resource, ids in by_resource.items()
            if holder.container == PLUGIN and all(_uuid(device_id) in self._shared for device_id in ids)
        }


def _uuid(device_id: str) -> str:
    """Return the UUID in an id of NVIDIA's plugin, "" for an id with more parts, of another plugin."""
    uuid, _, replica = device_id.partition(REPLICA_MARK)
    return "" if REPLICA_MARK in replica else uuid
