"""What the systems have in common that write the numbers of a container's cards into an annotation.

The kubelet's ids are amounts then: how much a container has is their number, of which card they do not say.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, NamedTuple

from exporter.model import ContainerRef, PodDetails
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.system import Claim, Grant, Granted, System
from exporter.sharing.base.view import View

# Percent of one card.
FULL = 100
MEBIBYTE = 1 << 20
TRUE = "true"
MOST_CARDS = 64
LONGEST = 80
_NUMBER = re.compile(r"[0-9]{1,4}")

Find = Callable[[str], Device | None]
Cards = tuple[Device | None, ...]


class Amounts(NamedTuple):
    """What a container has in all: percents of a card, and units of memory; 0 is none stated.

    ``ids`` are the numbers of its ids by resource, computing power first.
    """

    ids: Mapping[str, int]
    core: int
    memory: int


class CardSystem(System):
    """A system with a resource of computing power, one of memory, or both, under one name or several each.

    One id of ``cores`` stands for ``percent`` of a card, one of ``memories`` for ``unit`` bytes; ``others``
    are resources that state nothing. ``spreads``: a part can be spread evenly over several cards; else it is
    of one card, and from 100 percent on there are only whole cards.
    """

    cores: ClassVar[tuple[str, ...]] = ()
    memories: ClassVar[tuple[str, ...]] = ()
    others: ClassVar[tuple[str, ...]] = ()
    percent: ClassVar[int] = 1
    spreads: ClassVar[bool] = False

    @property
    def unit(self) -> int | None:
        """Return how many bytes one id of memory stands for, None where that cannot be told."""
        return MEBIBYTE

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._resources = (*self.cores, *self.memories, *self.others)

    def knows(self, resource: str) -> bool:
        """Whether a resource is of this system."""
        return resource in self._resources

    def owns(self, resource: str, _device_id: str) -> bool:
        """Whether a resource is of this system: nobody else uses its names."""
        return resource in self._resources

    def claim(self, resource: str, device_id: str) -> Claim | None:
        """Return the card on which an id is offered; its holder may have another card."""
        if not self.owns(resource, device_id):
            return None
        return Claim(self.offered_on(resource, device_id), replica=True, nominal=True)

    def grants(self) -> Granted:
        """Return what containers have of the cards that are known to be theirs."""
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
        """Whether the card of some container is not known for want of the pods' annotations."""
        holders = [holder for holder, held in self.view.held.items() if self._amounts(held) is not None]
        return super().blind() and not all(map(self.cards, holders))

    def cards(self, _holder: ContainerRef) -> Cards:
        """Return the cards of a container, None for one that is not here; () where they are not known."""
        raise NotImplementedError

    def offered_on(self, _resource: str, _device_id: str) -> Device | None:
        """Return the card on which an id is offered, None where it is not known."""
        return None

    def listed(self, holder: ContainerRef, name: str, text: str, find: Find) -> Cards:
        """Find the cards that an annotation lists; one that cannot be read is noted, and lists none."""
        items = text.split(",") if len(text) <= MOST_CARDS * LONGEST else []
        if 0 < len(set(items)) == len(items) <= MOST_CARDS and all(map(self.is_card, items)):
            return tuple(find(item) for item in items)
        self._object_to(holder, name, f"is no list of cards: {text[:LONGEST]!r}")
        return ()

    def is_card(self, item: str) -> bool:
        """Whether this is the name of a card."""
        return _NUMBER.fullmatch(item) is not None

    def by_minor(self, item: str) -> Device | None:
        """Find a card by the number of its device file."""
        return self.view.inventory.by_minor(int(item))

    def by_index(self, item: str) -> Device | None:
        """Find a card by its number in the order of the driver."""
        return self.view.inventory.by_index(int(item))

    def only_card(self) -> Cards:
        """Return the one card of a node that has no other."""
        whole = list(self.view.inventory.whole())
        return (whole[0],) if len(whole) == 1 else ()

    def _amounts(self, held: Mapping[str, frozenset[str]]) -> Amounts | None:
        ids = {name: len(held[name]) for name in self._resources if name in held}
        core, memory = (sum(ids.get(name, 0) for name in names) for names in (self.cores, self.memories))
        return Amounts(ids, core * self.percent, memory) if ids else None

    def _fits(self, holder: ContainerRef, amounts: Amounts, count: int) -> bool:
        """Whether this much can be of so many cards."""
        wanted = max(1, -(-amounts.core // FULL) if self.spreads else amounts.core // FULL)
        if count == wanted or (self.spreads and wanted < count <= min(amounts.ids.values())):
            return True
        had = ", ".join(f"{number} {resource}" for resource, number in amounts.ids.items())
        self._object_to(holder, "cards", f"{count} cards are listed for {had}")
        return False

    def _of_card(
        self, holder: ContainerRef, amounts: Amounts, count: int, card: Device | None
    ) -> Iterator[Grant]:
        """Yield what is had of one card of several: everywhere the same, rounded down as it is given out.

        The first resource bears all that is stated, the others add nothing to it. A whole card is had by
        the first one alone.
        """
        core = amounts.core // count
        whole = core >= FULL
        memory = total_memory(card) if whole else self._memory(amounts.memory // count)
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
                beside=place > 0,
            )

    def _memory(self, units: int) -> int | None:
        return units * self.unit if units and self.unit is not None else None

    def _object_to(self, holder: ContainerRef, name: str, text: str) -> None:
        about = f"{holder.namespace}/{holder.pod}/{holder.container}: {name}"
        self.view.object_to(self.name, "annotation", about, text)


def hundreds(system: System, resources: tuple[str, ...]) -> dict[str, Device]:
    """Return the card of each offered id, if a hundred ids are offered for each card.

    Which ids these are means nothing; that every card has a hundred is what they are made for.
    """
    cards = list(system.view.inventory.whole())
    offered = system.view.offered
    ids = sorted({device_id for resource in resources for device_id in offered.get(resource, ())})
    if len(ids) != FULL * len(cards):
        return {}
    return {device_id: cards[place // FULL] for place, device_id in enumerate(ids)}


def total_memory(card: Device | None) -> int | None:
    """Return the memory of a card, None where it is not known."""
    return card.memory if card is not None else None


def number_of(details: PodDetails, name: str) -> str:
    """Return which of a pod's containers one is, not counting those for its start; "" for one of these."""
    names = [container.name for container in details.containers if not container.init]
    return str(names.index(name)) if name in names else ""
