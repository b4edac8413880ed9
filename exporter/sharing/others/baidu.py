"""Baidu's cGPU: ``baidu.com/t4_16g_cgpu`` counts cards, further resources have the container's share of them.

``_core`` is in percent of a card, ``_memory`` in GiB and ``_memory_percent`` in percent, each of the
container's total. A container without them has whole cards, one with memory only has no compute limit. The
card of an id is not documented: holders are shown on nodes with one GPU only.
"""

import re
from collections.abc import Iterable, Mapping

from exporter.model import ContainerRef
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.system import GIBIBYTE, Grant, Granted, System

RESOURCE = re.compile(r"(baidu\.com/[a-z0-9_.-]+_cgpu)(?:_(core|memory|memory_percent))?")
PARTS = ("core", "memory", "memory_percent")


class Baidu(System):
    """Holders of a node's only GPU."""

    name = "baidu-cgpu"
    isolation = ""
    notes = (RESOURCE,)

    def knows(self, resource: str) -> bool:
        """Return True if a resource belongs to this system."""
        return self.owns(resource, "")

    def owns(self, resource: str, _device_id: str) -> bool:
        """Return True if a resource belongs to this system."""
        return RESOURCE.fullmatch(resource) is not None

    def grants(self) -> Granted:
        """Return the grants of the node's only GPU; with several GPUs, a holder's GPU is unknown."""
        inventory = self.view.inventory
        device = next(inventory.whole(), None) if len(inventory.devices) == 1 else None
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
        """Return the resources of each kind of card, the one that counts cards first."""
        mine: dict[str, list[str]] = {}
        for resource in sorted(held):
            match = RESOURCE.fullmatch(resource)
            if match is not None:
                mine.setdefault(match[1], []).append(resource)
        return mine

    def _grant(
        self, holder: ContainerRef, cards: str, held: Mapping[str, frozenset[str]], device: Device
    ) -> Grant:
        """Return the grant of one kind of card, with amounts by the container's ids, else by its limits."""
        resource, total = next(iter(held)), device.memory
        details = self.view.details(holder)
        specs = details.containers if details is not None else ()
        limits = next((spec.limits for spec in specs if spec.name == holder.container), None)
        asked = {
            part: len(held.get(f"{cards}_{part}", ())) or (limits or {}).get(f"{cards}_{part}", 0)
            for part in PARTS
        }
        memory, compute = asked["memory"] * GIBIBYTE or None, asked["core"] / 100 or None
        if memory is None and total is not None:
            memory = total * asked["memory_percent"] // 100 or None
        # Without limits it is unknown whether a container without amounts has whole cards.
        whole = limits is not None and not any(asked.values())
        return Grant(
            holder=holder,
            resource=resource,
            device=device,
            slices=len(held[resource]),
            memory_entitled=total if whole else memory,
            compute_entitled=1.0 if whole else compute,
            exclusive=whole,
        )
