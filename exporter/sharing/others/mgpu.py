"""Volcengine's mGPU: percents and MiB of cards, enforced by a kernel module.

The scheduler writes a container's cards, by index or UUID, into the annotation
``vke.volcengine.com/gpu-index-container-<name or number>``. The container's share is spread evenly over these
cards. ``mgpu-compute-policy`` lets containers exceed their share, and does not change it.
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
    """Holders by annotation."""

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
        """Return the card that an id of compute counts for."""
        return self._offered.get(device_id) if resource in self.cores else None

    def cards(self, holder: ContainerRef) -> Cards:
        """Return the cards in the container's annotation, or the only card without pod details."""
        details = self.view.details(holder)
        if details is None:
            return self.only_card()
        names = (f"{CARDS}{holder.container}", f"{CARDS}{number_of(details, holder.container)}")
        key = next((name for name in names if name in details.annotations), None)
        if details.annotations.get(ASSUMED) != TRUE or key is None:
            return ()
        return self.listed(holder, key, details.annotations[key], self._card)

    def is_card(self, item: str) -> bool:
        """Return True if ``item`` is the index or UUID of a card."""
        return super().is_card(item) or _UUID.fullmatch(item) is not None

    def _card(self, item: str) -> Device | None:
        return self.view.inventory.by_uuid(item) if item.startswith("GPU-") else self.by_index(item)
