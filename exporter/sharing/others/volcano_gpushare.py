"""Volcano's first GPU sharing: parts of the memory of a card, or whole cards; nothing enforces either.

The scheduler writes the numbers of a pod's cards, in the order of the driver, into ``volcano.sh/gpu-index``,
and the plugin gives those, whatever ids the kubelet picked: the UUIDs of ``volcano.sh/gpu-number`` are no
more than a count. All containers of a pod have the same card, or share its cards out among themselves in a
way that is not noted.

One id of ``volcano.sh/gpu-memory`` is as many mebibytes as the plugin was told. Each card has as many ids as
fit into the first one, from which the number is worked out where only one fits.
"""

import re

from exporter.model import ContainerRef
from exporter.sharing.base.cards import FULL, MEBIBYTE, TRUE, Cards, CardSystem, total_memory
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.system import whole_keys
from exporter.sharing.base.view import View

MEMORY, NUMBER = "volcano.sh/gpu-memory", "volcano.sh/gpu-number"
CARDS, ASSIGNED = "volcano.sh/gpu-index", "volcano.sh/gpu-assigned"
_ID = re.compile(r"([0-9]{1,4})-[0-9]{1,7}")


class VolcanoGpushare(CardSystem):
    """The shares of one poll."""

    name = "volcano-gpushare"
    notes = (whole_keys(CARDS, ASSIGNED),)
    cores = (NUMBER,)
    percent = FULL
    memories = (MEMORY,)
    blind_without_pods = "which GPU a container has"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._unit = self._worked_out()

    @property
    def unit(self) -> int | None:
        """Return what the plugin was told, None where several numbers give as many ids."""
        return self._unit

    def offered_on(self, resource: str, device_id: str) -> Device | None:
        """Find the card by its UUID, or by the first number of an id."""
        if resource == NUMBER:
            return self.view.inventory.by_uuid(device_id)
        match = _ID.fullmatch(device_id)
        return self.by_index(match[1]) if match else None

    def cards(self, holder: ContainerRef) -> Cards:
        """Read the annotation of the pod."""
        details = self.view.details(holder)
        if details is None:
            return self.only_card()
        if details.annotations.get(ASSIGNED) != TRUE or CARDS not in details.annotations:
            return ()
        return self.listed(holder, CARDS, details.annotations[CARDS], self.by_index)

    def _worked_out(self) -> int | None:
        first = sum(device_id.startswith("0-") for device_id in self.view.offered.get(MEMORY, ()))
        total = total_memory(self.by_index("0"))
        if not first or total is None:
            return None
        mebibytes = total // MEBIBYTE
        least, most = mebibytes // (first + 1) + 1, mebibytes // first
        return most * MEBIBYTE if least == most else None
