"""The base class of systems that write a container's card numbers into an annotation.

The kubelet's ids are amounts in these systems: their number is the container's share, the annotation has the
card.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import ClassVar, NamedTuple

from exporter.model import ContainerRef, DeviceKey, DeviceSharing, only
from exporter.sharing.base import MEBIBYTE, Grant, Granted, Meaning, Offer, System, weakest
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.view import View

# Percent of one card.
FULL = 100
TRUE = "true"
MOST_CARDS = 64
LONGEST = 80
_NUMBER = re.compile(r"[0-9]{1,4}")

Cards = tuple[Device | None, ...]


class HeldAmounts(NamedTuple):
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
    confirmed: ClassVar[str] = ""  # the annotation that is "true" once the other ones count
    blind_without_pods = "which GPU a container has"
    unit: int | None = MEBIBYTE  # bytes of one id of memory, None if unknown

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._resources = (*self.cores, *self.memories, *self.others)
        self._isolations: dict[DeviceKey, set[str]] = defaultdict(set)

    def knows(self, resource: str) -> bool:
        return resource in self._resources

    def owns(self, resource: str, _device_id: str) -> bool:
        """Return True if a resource belongs to this system: no other system uses its names."""
        return resource in self._resources

    def meaning(self, resource: str, device_id: str) -> Meaning | None:
        """Return the card on which an id is allocatable; its holder may have another card."""
        if not self.owns(resource, device_id):
            return None
        return Meaning(self.offered_on(resource, device_id), replica=True, nominal=True)

    def grants(self) -> Granted:
        """Return the grants to containers with known cards."""
        granted = Granted()
        for holder, held in self.view.held.items():
            amounts = self._amounts(held)
            cards = self.cards(holder) if amounts is not None else ()
            if amounts is not None and cards and self._fits(holder, amounts, len(cards)):
                core = amounts.core // len(cards)
                for card in cards:
                    if card is not None:
                        self._isolations[card.key].add(self.isolation_of(holder, core))
                    granted.grants += self._of_card(holder, amounts, len(cards), card)
                granted.settle(holder, amounts.ids)
        return granted

    def sharing(self, device: Device, offer: Offer) -> DeviceSharing:
        """Return the mode, with the weakest isolation of the holders."""
        isolations = self._isolations.get(device.key)
        isolation = weakest(isolations) if isolations else self.isolation
        return replace(super().sharing(device, offer), isolation=isolation)

    def isolation_of(self, _holder: ContainerRef, _core: int) -> str:
        """Return the isolation of a container with ``core`` percent of a card, by default the system's."""
        return self.isolation

    def blind(self) -> bool:
        """Return True if a container's card is unknown because annotations are not readable."""
        holders = [holder for holder, held in self.view.held.items() if self._amounts(held) is not None]
        return super().blind() and not all(map(self.cards, holders))

    def cards(self, holder: ContainerRef) -> Cards:
        """Return the cards of a container, None for one not on this node; () if they are unknown."""
        annotations = self.view.annotations(holder)
        key = next(filter(annotations.__contains__, self.keys(holder)), None)
        if key is not None and annotations.get(self.confirmed) == TRUE:
            return self._listed(holder, key, annotations[key])
        return self.unannotated(holder)

    def keys(self, holder: ContainerRef) -> tuple[str, ...]:
        """Return the possible keys of the annotation with a container's cards; the first one counts."""
        raise NotImplementedError

    def unannotated(self, holder: ContainerRef) -> Cards:
        """Return the cards without a confirmed annotation: the only card if pod details are unknown."""
        return self.only_card() if self.view.details(holder) is None else ()

    def offered_on(self, resource: str, device_id: str) -> Device | None:
        """Return the card on which an id is allocatable, None if unknown: a card has 100 ids of compute."""
        return self._hundreds.get(device_id) if resource in self.cores else None

    def is_card(self, item: str) -> bool:
        """Return True if ``item`` of an annotation has the form of a card's number."""
        return _NUMBER.fullmatch(item) is not None

    def card(self, item: str) -> Device | None:
        """Return the card of an ``item`` of an annotation, by default an NVML index."""
        return self.view.inventory.by_index(int(item))

    def number_of(self, holder: ContainerRef) -> str:
        """Return the position among the pod's main containers; "" if unknown, or of an init container."""
        names = self.view.main_containers(holder)
        return str(names.index(holder.container)) if holder.container in names else ""

    def only_card(self) -> Cards:
        """Return the card of a node with one card, else ()."""
        card = only(self.view.inventory.whole())
        return () if card is None else (card,)

    @cached_property
    def _hundreds(self) -> dict[str, Device]:
        """A card for each allocatable id of compute, if there are a hundred ids for each card.

        The assignment is arbitrary: ids have no card, but each card accounts for a hundred of them.
        """
        cards = list(self.view.inventory.whole())
        ids = sorted({device_id for name in self.cores for device_id in self.view.offered.get(name, ())})
        if len(ids) != FULL * len(cards):
            return {}
        return {device_id: cards[position // FULL] for position, device_id in enumerate(ids)}

    def _listed(self, holder: ContainerRef, name: str, text: str) -> Cards:
        """Return the cards in the text of annotation ``name``; () and a problem if it is malformed."""
        items = text.split(",") if len(text) <= MOST_CARDS * LONGEST else []
        if 0 < len(set(items)) == len(items) <= MOST_CARDS and all(map(self.is_card, items)):
            return tuple(map(self.card, items))
        self.object_to_container(holder, name, f"is not a list of cards: {text[:LONGEST]!r}")
        return ()

    def _amounts(self, held: Mapping[str, frozenset[str]]) -> HeldAmounts | None:
        ids = {name: len(held[name]) for name in self._resources if name in held}
        core, memory = (sum(ids.get(name, 0) for name in names) for names in (self.cores, self.memories))
        return HeldAmounts(ids, core * self.percent, memory) if ids else None

    def _fits(self, holder: ContainerRef, amounts: HeldAmounts, count: int) -> bool:
        """Return True if these amounts can be of ``count`` cards."""
        wanted = max(1, -(-amounts.core // FULL) if self.spreads else amounts.core // FULL)
        if count == wanted or (self.spreads and wanted < count <= min(amounts.ids.values())):
            return True
        held = ", ".join(f"{number} {resource}" for resource, number in amounts.ids.items())
        self.object_to_container(holder, "cards", f"{count} cards are listed for {held}")
        return False

    def _of_card(
        self, holder: ContainerRef, amounts: HeldAmounts, count: int, card: Device | None
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
        for position, (resource, number) in enumerate(amounts.ids.items()):
            if position and whole:
                break
            yield Grant(
                holder=holder,
                resource=resource,
                device=card,
                slices=number // count,
                memory_entitled=0 if position else memory,
                compute_entitled=0.0 if position else compute,
                exclusive=whole,
                counted_elsewhere=position > 0,
            )


def total_memory(card: Device | None) -> int | None:
    """Return the memory of a card in bytes, None if unknown."""
    return card.memory if card is not None else None
