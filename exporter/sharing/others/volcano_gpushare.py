"""Volcano's first GPU sharing: shares of a card's memory, or whole cards, without enforcement.

The scheduler writes the NVML indexes of a pod's cards into ``volcano.sh/gpu-index``. The plugin uses those,
whatever ids the kubelet chose: UUIDs of ``volcano.sh/gpu-number`` only count. All containers of a pod have
the same card, or divide its cards in a way that no annotation has.

One id of ``volcano.sh/gpu-memory`` is a number of MiB by the plugin's configuration. Each card has as many
ids as fit into the first card: the size of an id is known if only one size gives this number.
"""

import re

from exporter.model import ContainerRef
from exporter.sharing.base.cards import FULL, TRUE, Cards, CardSystem, total_memory
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.system import MEBIBYTE, whole_keys
from exporter.sharing.base.view import View

MEMORY, NUMBER = "volcano.sh/gpu-memory", "volcano.sh/gpu-number"
CARDS, ASSIGNED = "volcano.sh/gpu-index", "volcano.sh/gpu-assigned"
_ID = re.compile(r"([0-9]{1,4})-[0-9]{1,7}")


class VolcanoGpushare(CardSystem):
    """Holders by annotation."""

    name = "volcano-gpushare"
    notes = (whole_keys(CARDS, ASSIGNED),)
    cores = (NUMBER,)
    percent = FULL
    memories = (MEMORY,)
    blind_without_pods = "which GPU a container has"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._unit = self._computed_unit()

    @property
    def unit(self) -> int | None:
        """Return the bytes of an id, None if several sizes give the same number of ids."""
        return self._unit

    def offered_on(self, resource: str, device_id: str) -> Device | None:
        """Return the card by its UUID, or by the index in an id."""
        if resource == NUMBER:
            return self.view.inventory.by_uuid(device_id)
        match = _ID.fullmatch(device_id)
        return self.by_index(match[1]) if match else None

    def cards(self, holder: ContainerRef) -> Cards:
        """Return the cards in the pod's annotation, or the only card without pod details."""
        details = self.view.details(holder)
        if details is None:
            return self.only_card()
        if details.annotations.get(ASSIGNED) != TRUE or CARDS not in details.annotations:
            return ()
        return self.listed(holder, CARDS, details.annotations[CARDS], self.by_index)

    def _computed_unit(self) -> int | None:
        first = sum(device_id.startswith("0-") for device_id in self.view.offered.get(MEMORY, ()))
        total = total_memory(self.by_index("0"))
        if not first or total is None:
            return None
        mebibytes = total // MEBIBYTE
        least, most = mebibytes // (first + 1) + 1, mebibytes // first
        return most * MEBIBYTE if least == most else None
