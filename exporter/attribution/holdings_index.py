"""Holdings by device and container, and the columns of a row that follow from them alone."""

from collections import defaultdict
from operator import attrgetter
from typing import NamedTuple

from exporter.model import ContainerRef, DeviceKey, DeviceSharing, HeldClaim, Holding, Holdings, total
from exporter.model.kubelet import worst_health


class Entitlement(NamedTuple):
    """A container's share of a device, as a row shows it."""

    resource: str  # resources joined by ",", the one that counts the slices first
    sharing: str
    isolation: str
    slices: int | None
    memory: int | None  # bytes
    compute: float | None  # share of the physical GPU
    claims: tuple[HeldClaim, ...]
    health: str  # "" if unknown


class HoldingsIndex:
    """The holdings of a node by device and container; ``holdings`` must not change afterwards."""

    def __init__(self, holdings: Holdings) -> None:
        self.holdings = holdings
        self._held: dict[DeviceKey, dict[ContainerRef, list[Holding]]] = {}
        for holding in holdings.holdings:
            of_device = self._held.setdefault(holding.device, defaultdict(list))
            of_device[holding.holder].append(holding)
        self._unresolved_pods = {ref.pod_name for ref in holdings.unresolved_holders}
        self._entitled: dict[tuple[DeviceKey, ContainerRef], tuple[DeviceSharing, Entitlement]] = {}

    def on(self, key: DeviceKey) -> dict[ContainerRef, list[Holding]]:
        return self._held.get(key, {})

    def entitlement(self, key: DeviceKey, sharing: DeviceSharing, ref: ContainerRef) -> Entitlement:
        """Return a container's share of a device with this ``sharing``; cached for holders."""
        known = self._entitled.get((key, ref))
        if known is not None and known[0] is sharing:
            return known[1]
        entitlement = self._entitlement(key, sharing, ref)
        if ref in self.on(key):
            # Containers without a holding come and go: caching them would grow without bound.
            self._entitled[key, ref] = sharing, entitlement
        return entitlement

    def _entitlement(self, key: DeviceKey, sharing: DeviceSharing, ref: ContainerRef) -> Entitlement:
        # The holding that counts the slices comes first.
        held = sorted(self.on(key).get(ref, []), key=attrgetter("counted_elsewhere"))
        own = next((holding for holding in held if holding.sharing), sharing)
        return Entitlement(
            resource=",".join(dict.fromkeys(holding.resource for holding in held)),
            sharing=own.sharing,
            isolation=own.isolation,
            slices=self._slices(key, ref, held),
            memory=total([holding.memory_entitled for holding in held]) if held else None,
            compute=total([holding.compute_entitled for holding in held]) if held else None,
            claims=tuple(sorted({claim for holding in held for claim in holding.claims})),
            health=worst_health(holding.health for holding in held),
        )

    def _slices(self, key: DeviceKey, ref: ContainerRef, held: list[Holding]) -> int | None:
        """Return the slices held, in the first unit; 0 only if it is certain that none is held (rule 7).

        The kubelet lists neither init nor ephemeral containers: if another container of the pod holds the
        device, a container that is not listed may hold it too. A pod that is not listed may hold anything.
        """
        if held:
            return sum(holding.slices for holding in held if not holding.counted_elsewhere)
        listed = self.holdings.listed
        pod_holds = any(other.pod_name == ref.pod_name for other in self.on(key))
        unsure = not self.holdings.known or ref.pod_name in self._unresolved_pods
        unsure = unsure or ref._replace(container="") not in listed
        unsure = unsure or (pod_holds and (not ref.container or ref not in listed))
        unsure = unsure or key in self.holdings.unplaced
        return None if unsure else 0


NOT_KNOWN = HoldingsIndex(Holdings(known=False))
