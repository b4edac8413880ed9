"""Baidu's cGPU: ``baidu.com/t4_16g_cgpu`` counts cards, and resources beside it say how much of them.

``_core`` is in percent of a card, ``_memory`` in GiB and ``_memory_percent`` in percent, of all that a
container has; whoever asks for none of them has whole cards. Who asks for memory only is not limited in
compute. Which card an id means is not published: a holder is shown where the node has one GPU only.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from exporter.model import ContainerRef
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.system import Grant, Granted, System

GIBIBYTE = 1 << 30
RESOURCE = re.compile(r"(baidu\.com/[a-z0-9_.-]+_cgpu)(?:_(core|memory|memory_percent))?")
PARTS = ("core", "memory", "memory_percent")


class Entitled(NamedTuple):
    """Bytes, a share of the GPU, and whether it is the holder's alone."""

    memory: int | None = None
    compute: float | None = None
    exclusive: bool = False


class Baidu(System):
    """Holders of the only GPU of a node."""

    name = "baidu-cgpu"
    isolation = ""
    notes = (RESOURCE,)

    def knows(self, resource: str) -> bool:
        """Whether a resource is Baidu's."""
        return self.owns(resource, "")

    def owns(self, resource: str, _device_id: str) -> bool:
        """Return whether a resource is of this system."""
        return RESOURCE.fullmatch(resource) is not None

    def grants(self) -> Granted:
        """Return the only GPU to whoever has a part of one; on other nodes the GPU is not known."""
        device = self._only()
        if device is None:
            return Granted()
        grants: list[Grant] = []
        settled = set()
        for holder, held in self.view.held.items():
            for cards, mine in self._mine(held).items():
                settled |= {(holder, resource) for resource in mine}
                parts = {resource: held[resource] for resource in mine}
                grants.append(self._grant(holder, cards, parts, device))
        return Granted(grants=tuple(grants), settled=frozenset(settled))

    def _mine(self, held: Iterable[str]) -> dict[str, list[str]]:
        """Return the resources of each kind of card, the cards before what there is beside them."""
        mine: dict[str, list[str]] = {}
        for resource in sorted(held):
            match = RESOURCE.fullmatch(resource)
            if match is not None:
                mine.setdefault(match[1], []).append(resource)
        return mine

    def _grant(
        self, holder: ContainerRef, cards: str, held: Mapping[str, frozenset[str]], device: Device
    ) -> Grant:
        resource = next(iter(held))
        entitled = self._entitled(holder, cards, held, device)
        return Grant(
            holder=holder,
            resource=resource,
            device=device,
            slices=len(held[resource]),
            memory_entitled=entitled.memory,
            compute_entitled=entitled.compute,
            exclusive=entitled.exclusive,
        )

    def _entitled(
        self, holder: ContainerRef, cards: str, held: Mapping[str, frozenset[str]], device: Device
    ) -> Entitled:
        """Return what a container asked for: by its ids, or by its limits where there are no ids of that."""
        details = self.view.details(holder)
        specs = details.containers if details is not None else ()
        limits = next((spec.limits for spec in specs if spec.name == holder.container), None)
        asked = {
            part: len(held.get(f"{cards}_{part}", ())) or (limits or {}).get(f"{cards}_{part}", 0)
            for part in PARTS
        }
        total = device.memory
        if not any(asked.values()):
            # Without the limits nobody knows whether there is more to it than the cards.
            return Entitled(total, 1.0, exclusive=True) if limits is not None else Entitled()
        memory = asked["memory"] * GIBIBYTE or None
        if memory is None and total is not None:
            memory = total * asked["memory_percent"] // 100 or None
        return Entitled(memory, asked["core"] / 100 or None)

    def _only(self) -> Device | None:
        inventory = self.view.inventory
        return next(inventory.whole(), None) if len(inventory.devices) == 1 else None
