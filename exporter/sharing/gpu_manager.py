"""Tencent's gpu-manager: shares of GPUs under ``tencent.com/vcuda-core``, held by a library in the container.

The ids are numbered through and mean no card. Once a container is about to start, the manager writes the
minors of its cards into the annotation ``tencent.com/predicate-gpu-idx-<container>``; before that the
scheduler's wish stands there. Where the pods' objects are not known, or say nothing, the manager's own files
tell the cards.

``tencent.com/vcuda-core-limit`` is how far a container may go while others leave room, and no entitlement.
"""

import re
from typing import ClassVar

from exporter.model import ContainerRef
from exporter.sharing.cards import TRUE, Cards, CardSystem, hundreds, number_of
from exporter.sharing.files.vcuda import read_vcuda
from exporter.sharing.inventory import Device
from exporter.sharing.system import Read
from exporter.sharing.view import View

CORE, MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
CARDS, ASSIGNED = "tencent.com/predicate-gpu-idx-", "tencent.com/gpu-assigned"
BLOCK = 1 << 28


class GpuManager(CardSystem):
    """The shares of one poll. From a hundred percent on there are whole cards, with all their memory."""

    name = "gpu-manager"
    isolation = "soft"
    notes = (re.compile(f"{re.escape(ASSIGNED)}|{re.escape(CARDS)}[0-9]{{1,9}}"),)
    cores = (CORE,)
    memories = (MEMORY,)
    blind_without_pods = "which GPU a container has, where gpu-manager's own files do not tell"
    read: ClassVar[Read | None] = staticmethod(read_vcuda)

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._offered = hundreds(self, self.cores)

    @property
    def unit(self) -> int:
        """Return the size of a block of memory."""
        return BLOCK

    def offered_on(self, resource: str, device_id: str) -> Device | None:
        """Count a hundred percents on each card; how many blocks of memory it has is not told."""
        return self._offered.get(device_id) if resource == CORE else None

    def cards(self, holder: ContainerRef) -> Cards:
        """Read the annotation, or else the manager's files."""
        details = self.view.details(holder)
        if details is None:
            return self._by_file(holder)
        if details.annotations.get(ASSIGNED) != TRUE:
            return ()
        name = f"{CARDS}{number_of(details, holder.container)}"
        if name not in details.annotations:
            return self._by_file(holder)
        return self.listed(holder, name, details.annotations[name], self.by_minor)

    def _by_file(self, holder: ContainerRef) -> Cards:
        file = self.view.file(self.name, holder)
        named = [each.device for each in file.devices if each.device] if file is not None else []
        return tuple(map(self._named, named)) or self.only_card()

    def _named(self, name: str) -> Device | None:
        return self.by_minor(name) if name.isdecimal() else self.view.inventory.by_bus_id(name)
