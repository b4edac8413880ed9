"""Small nodes of systems whose ids are amounts, for the tests of these."""

from collections.abc import Mapping
from itertools import count

from exporter.model import Allocation, Holdings, OfferedDevice
from exporter.sharing.base.view import Objections
from tests.core.attribution.build import UUID, gpu
from tests.core.sharing.build import OTHER_UUID, container, numbered, resolve

MIB = 1 << 20
# No id of one container is ever another's.
_NUMBERS = count()


def two_cards():
    """Return two GPUs of 16 GiB: the driver's first is /dev/nvidia1, the second /dev/nvidia0."""
    return [numbered(0, 1, UUID), numbered(1, 0, OTHER_UUID)]


def one_card():
    """Return a node with one GPU of 16 GiB."""
    return [gpu()]


def has(pod, amounts: Mapping[str, int], name="main") -> list[Allocation]:
    """Return these amounts of ids of a container."""
    return [
        Allocation(container(pod, name), resource, f"id-{next(_NUMBERS)}")
        for resource, amount in amounts.items()
        for _ in range(amount)
    ]


def offers(amounts: Mapping[str, int], spelled="id-{}") -> list[OfferedDevice]:
    """Return these amounts of offered ids."""
    return [
        OfferedDevice(resource, spelled.format(number))
        for resource, amount in amounts.items()
        for number in range(amount)
    ]


def shares(holdings: Holdings, pod, name="main") -> dict[str, tuple[int | None, float | None]]:
    """Return the entitlements of a container by the uuid of the card: bytes, and shares of the card.

    Of several resources on one card, the others must add nothing to what the first states.
    """
    by_card: dict[str, list] = {}
    for holding in holdings.holdings:
        if holding.holder == container(pod, name):
            by_card.setdefault(holding.device.uuid, []).append(
                (holding.memory_entitled, holding.compute_entitled)
            )
    for stated in by_card.values():
        assert stated.count((0, 0.0)) == len(stated) - 1, stated
    return {uuid: next(pair for pair in stated if pair != (0, 0.0)) for uuid, stated in by_card.items()}


def counted(gpus, allocated, **facts) -> tuple[Holdings, dict[str, int]]:
    """Return the holdings of a node and the counts of objections."""
    objections = Objections()
    holdings = resolve(gpus, allocated, objections=objections, **facts)
    return holdings, dict(objections.counts)
