"""Intel's device plugin: whole GPUs, or GPUs shared by several containers without limits.

An id is the DRM card of the GPU and a number (``card0-3``). No driver reads these GPUs: only their holders
are known. The monitoring resource gives access to every GPU and is not a holding.
"""

import re
from collections import Counter

from exporter.model import ContainerRef, DeviceSharing
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.system import Claim, Grant, Granted, Offer, System, unread_device, words_of
from exporter.sharing.base.view import View

RESOURCES = re.compile(r"gpu\.intel\.com/(?:i915|xe|dxg)")
MONITORING = re.compile(r"gpu\.intel\.com/(?:(?:i915|xe)_)?monitoring")
ID = re.compile(r"card(0|[1-9][0-9]{0,5})-[0-9]{1,6}")
MODEL = "Intel GPU"


class Intel(System):
    """Intel's own plugin."""

    name = "intel"
    vendor = "intel"
    isolation = "none"
    words = words_of("card all")

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._offered = Counter(
            (resource, int(match[1]))
            for resource, ids in view.offered.items()
            if self.knows(resource)
            for device_id in ids
            if (match := ID.fullmatch(device_id))
        )

    def knows(self, resource: str) -> bool:
        """Return True if a resource belongs to this system."""
        return RESOURCES.fullmatch(resource) is not None

    def owns(self, resource: str, _device_id: str) -> bool:
        """Return True if a resource belongs to this system."""
        return RESOURCES.fullmatch(resource) is not None

    def grants(self) -> Granted:
        """Return the grants of the cards that ids name."""
        grants: list[Grant] = []
        settled: set[tuple[ContainerRef, str]] = set()
        for holder, by_resource in self.view.held.items():
            for resource, ids in by_resource.items():
                if RESOURCES.fullmatch(resource):
                    grants += self._of_holder(holder, resource, ids)
                    settled.add((holder, resource))
                elif MONITORING.fullmatch(resource):
                    settled.add((holder, resource))
        return Granted(grants=tuple(grants), settled=frozenset(settled))

    def claim(self, resource: str, device_id: str) -> Claim | None:
        """Return the card of an id."""
        match = ID.fullmatch(device_id)
        if match is None or not RESOURCES.fullmatch(resource):
            return None
        return Claim(_card(int(match[1])), replica=True)

    def sharing(self, _device: Device, offer: Offer) -> DeviceSharing:
        """Return the mode: exclusive for a card with one slice."""
        if [count.offered for count in offer.slices] == [1]:
            return DeviceSharing(sharing="exclusive", isolation="hard", exclusive=True, slices=offer.slices)
        return DeviceSharing(sharing=self.name, isolation=self.isolation, slices=offer.slices)

    def _of_holder(self, holder: ContainerRef, resource: str, ids: frozenset[str]) -> list[Grant]:
        slices_by_card = Counter(self._number(holder, resource, device_id) for device_id in sorted(ids))
        return [
            Grant(
                holder=holder,
                resource=resource,
                device=None if card is None else _card(card),
                slices=held,
                compute_entitled=1.0 if card is not None and self._offered[resource, card] == 1 else None,
            )
            for card, held in slices_by_card.items()
        ]

    def _number(self, holder: ContainerRef, resource: str, device_id: str) -> int | None:
        match = ID.fullmatch(device_id)
        if match is None:
            about = f"{holder.namespace}/{holder.pod}: {resource}"
            self.view.object_to(self.name, "id", about, f"{device_id[:60]!r} does not name a card")
        return None if match is None else int(match[1])


def _card(number: int) -> Device:
    return unread_device("intel", f"card{number}", MODEL, number)
