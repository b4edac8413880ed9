"""Volcengine's mGPU: percents and mebibytes of cards, which the kernel enforces.

The scheduler writes the cards of a container, by number or by UUID, into the annotation
``vke.volcengine.com/gpu-index-container-<name>``, or with the container's number in place of its name. What a
container has is spread evenly over all cards that are listed there. How far a container may go beyond its
share while others leave room (``mgpu-compute-policy``) is no part of its share.
"""

import re

from exporter.model import ContainerRef
from exporter.sharing.base.cards import TRUE, Cards, CardSystem, hundreds, number_of
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.view import View

PREFIX = "vke.volcengine.com/"
CARDS, ASSUMED = f"{PREFIX}gpu-index-container-", f"{PREFIX}assumed"
_UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Mgpu(CardSystem):
    """The shares of one poll."""

    name = "mgpu"
    isolation = "hard"
    notes = (re.compile(f"{re.escape(ASSUMED)}|{re.escape(CARDS)}(?P<name>.+)"),)
    cores = (f"{PREFIX}mgpu-core",)
    memories = (f"{PREFIX}mgpu-memory",)
    spreads = True
    blind_without_pods = "which GPU a container has"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._offered = hundreds(self, self.cores)

    def offered_on(self, resource: str, device_id: str) -> Device | None:
        """Count a hundred percents on each card."""
        return self._offered.get(device_id) if resource in self.cores else None

    def cards(self, holder: ContainerRef) -> Cards:
        """Read the annotation of the container, by its name or by its number."""
        details = self.view.details(holder)
        if details is None:
            return self.only_card()
        names = (f"{CARDS}{holder.container}", f"{CARDS}{number_of(details, holder.container)}")
        key = next((name for name in names if name in details.annotations), None)
        if details.annotations.get(ASSUMED) != TRUE or key is None:
            return ()
        return self.listed(holder, key, details.annotations[key], self._card)

    def is_card(self, item: str) -> bool:
        """Whether this is the number or the UUID of a card."""
        return super().is_card(item) or _UUID.fullmatch(item) is not None

    def _card(self, item: str) -> Device | None:
        return self.view.inventory.by_uuid(item) if item.startswith("GPU-") else self.by_index(item)
