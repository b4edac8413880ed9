"""The base class of systems that write a container's card numbers into an annotation.

The kubelet's ids are amounts in these systems: their number is the container's share, the annotation has the
card.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, NamedTuple

from exporter.model import ContainerRef, PodDetails
from exporter.sharing.base.inventory import Device, only
from exporter.sharing.base.system import MEBIBYTE, Claim, Grant, Granted, System
from exporter.sharing.base.view import View, main_containers

# Percent of one card.
FULL = 100
TRUE = "true"
MOST_CARDS = 64
LONGEST = 80
_NUMBER = re.compile(r"[0-9]{1,4}")

Find = Callable[[str], Device | None]
Cards = tuple[Device | None, ...]


class Amounts(NamedTuple):
    """The total amounts of a container."""

    ids: Mapping[str, int]  # number of ids by resource, compute first
    core: int  # percent of a card; 0 if not stated
    memory: int  # units of memory; 0 if not stated


class CardSystem(System):
    """A system with resources of compute, memory, or both."""

    cores: ClassVar[tuple[str, ...]] = ()  # resources of compute
    memories: ClassVar[tuple[str, ...]] = ()  # resources of memory, in ``unit`` bytes
    others: ClassVar[tuple[str, ...]] = ()  # resources without an amount
    percent: ClassVar[int] = 1  # percent of a card for one id of ``cores``
    # A share can be spread evenly over several cards; else it is of one card, and whole cards from 100 %.
    spreads: ClassVar[bool] = False

    @property
    def unit(self) -> int | None:
        """Return the bytes of one id of memory, None if unknown."""
        return MEBIBYTE

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._resources = (*self.cores, *self.memories, *self.others)

    def knows(self, resource: str) -> bool:
        """Return True if a resource belongs to this system."""
        return resource in self._resources

    def owns(self, resource: str, _device_id: str) -> bool:
        """Return True if a resource belongs to this system: no other system uses its names."""
        return resource in self._resources

    def claim(self, resource: str, device_id: str) -> Claim | None:
        """Return the card on which an id is allocatable; its holder may have another card."""
        if not self.owns(resource, device_id):
            return None
        return Claim(self.offered_on(resource, device_id), replica=True, nominal=True)

    def grants(self) -> Granted:
        """Return the grants to containers with known cards."""
        grants: list[Grant] = []
        settled: set[tuple[ContainerRef, str]] = set()
        for holder, held in self.view.held.items():
            amounts = self._amounts(held)
            cards = self.cards(holder) if amounts is not None else ()
            if amounts is not None and cards and self._fits(holder, amounts, len(cards)):
                grants += (
                    grant for card in cards for grant in self._of_card(holder, amounts, len(cards), card)
                )
                settled |= {(holder, resource) for resource in amounts.ids}
        return Granted(grants=tuple(grants), settled=frozenset(settled))

    def blind(self) -> bool:
        """Return True if a container's card is unknown because annotations are not readable."""
        holders = [holder for holder, held in self.view.held.items() if self._amounts(held) is not None]
        return super().blind() and not all(map(self.cards, holders))

    def cards(self, _holder: ContainerRef) -> Cards:
        """Return the cards of a container, None for one not on this node; () if they are unknown."""
        raise NotImplementedError

    def offered_on(self, _resource: str, _device_id: str) -> Device | None:
        """Return the card on which an id is allocatable, None if unknown."""
        return None

    def listed(self, holder: ContainerRef, name: str, text: str, find: Find) -> Cards:
        """Return the cards in the text of annotation ``name``; () and a problem if it is malformed."""
        items = text.split(",") if len(text) <= MOST_CARDS * LONGEST else []
        if 0 < len(set(items)) == len(items) <= MOST_CARDS and all(map(self.is_card, items)):
            return tuple(find(item) for item in items)
        self.object_to_container(holder, name, f"is not a list of cards: {text[:LONGEST]!r}")
        return ()

    def is_card(self, item: str) -> bool:
        """Return True if ``item`` has the form of a card's number."""
        return _NUMBER.fullmatch(item) is not None

    def by_minor(self, item: str) -> Device | None:
        """Return the card with this minor."""
        return self.view.inventory.by_minor(int(item))

    def by_index(self, item: str) -> Device | None:
        """Return the card with this NVML index."""
        return self.view.inventory.by_index(int(item))

    def only_card(self) -> Cards:
        """Return the card of a node with one card, else ()."""
        card = only(self.view.inventory.whole())
        return () if card is None else (card,)

    def _amounts(self, held: Mapping[str, frozenset[str]]) -> Amounts | None:
        ids = {name: len(held[name]) for name in self._resources if name in held}
        core, memory = (sum(ids.get(name, 0) for name in names) for names in (self.cores, self.memories))
        return Amounts(ids, core * self.percent, memory) if ids else None

    def _fits(self, holder: ContainerRef, amounts: Amounts, count: int) -> bool:
        """Return True if these amounts can be of ``count`` cards."""
        wanted = max(1, -(-amounts.core // FULL) if self.spreads else amounts.core // FULL)
        if count == wanted or (self.spreads and wanted < count <= min(amounts.ids.values())):
            return True
        held = ", ".join(f"{number} {resource}" for resource, number in amounts.ids.items())
        self.object_to_container(holder, "cards", f"{count} cards are listed for {held}")
        return False

    def _of_card(
        self, holder: ContainerRef, amounts: Amounts, count: int, card: Device | None
    ) -> Iterator[Grant]:
        """Yield the grants of one of ``count`` cards: equal amounts of each, rounded down as the systems do.

        The grant of the first resource has all entitlements, the others add slices in their own units. A
        whole card has only the first grant.
        """
        core, units = amounts.core // count, amounts.memory // count
        whole = core >= FULL
        memory = units * self.unit if units and self.unit is not None else None
        if whole:
            memory = total_memory(card)
        compute = 1.0 if whole else core / FULL or None
        for place, (resource, number) in enumerate(amounts.ids.items()):
            if place and whole:
                break
            yield Grant(
                holder=holder,
                resource=resource,
                device=card,
                slices=number // count,
                memory_entitled=0 if place else memory,
                compute_entitled=0.0 if place else compute,
                exclusive=whole,
                counted_elsewhere=place > 0,
            )


def hundreds(system: System, resources: tuple[str, ...]) -> dict[str, Device]:
    """Return a card for each allocatable id, if there are a hundred ids for each card.

    The assignment is arbitrary: ids have no card, but each card accounts for a hundred of them.
    """
    cards = list(system.view.inventory.whole())
    offered = system.view.offered
    ids = sorted({device_id for resource in resources for device_id in offered.get(resource, ())})
    if len(ids) != FULL * len(cards):
        return {}
    return {device_id: cards[place // FULL] for place, device_id in enumerate(ids)}


def total_memory(card: Device | None) -> int | None:
    """Return the memory of a card in bytes, None if unknown."""
    return card.memory if card is not None else None


def number_of(details: PodDetails, name: str) -> str:
    """Return the position of a container among the pod's main containers; "" for an init container."""
    names = main_containers(details.containers)
    return str(names.index(name)) if name in names else ""
