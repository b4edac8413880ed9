"""The kubelet's ids sorted by the device that they name, whichever system they come from."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from exporter.model import Allocation, Allocations, ContainerRef, DeviceKey, SliceCount
from exporter.sharing.inventory import Device, Inventory
from exporter.sharing.system import Claim, System


@dataclass(slots=True)
class Resolved:
    """The ids of one poll. ``systems`` are those that know an id of a device; none knows all devices."""

    offered: dict[tuple[DeviceKey, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    held: dict[tuple[DeviceKey, str, ContainerRef], set[str]] = field(
        default_factory=lambda: defaultdict(set)
    )
    replicated: set[DeviceKey] = field(default_factory=set)
    unresolved: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    unresolved_holders: set[ContainerRef] = field(default_factory=set)
    systems: dict[DeviceKey, System] = field(default_factory=dict)


def resolve(inventory: Inventory, allocations: Allocations, systems: Sequence[System]) -> Resolved:
    """Find the device of every id; of two systems that know it, the first counts."""
    resolved = Resolved()
    for offer in allocations.offered or ():
        system, claim = _claim(inventory, systems, offer.resource, offer.device_id)
        if system is not None and claim.device is not None:
            resolved.offered[claim.device.key, offer.resource].add(offer.device_id)
            _note(resolved, claim.device, system, claim)
    for allocation in allocations.allocated:
        _resolve_allocation(resolved, inventory, systems, allocation)
    return resolved


def system_of(resolved: Resolved, systems: Iterable[System], device: Device) -> System:
    """Return the system that shares a device: the one of its ids, else that of its vendor."""
    by_vendor = {system.vendor: system for system in reversed(list(systems))}
    return resolved.systems.get(device.key) or by_vendor[device.gpu.identity.vendor]


def slice_counts(resolved: Resolved, offered_known: bool) -> dict[DeviceKey, tuple[SliceCount, ...]]:
    """Count slices of every resource that is offered or held on a device; an id held twice is one slice."""
    held: dict[tuple[DeviceKey, str], set[str]] = defaultdict(set)
    for (device, resource, _), ids in resolved.held.items():
        held[device, resource] |= ids
    counts: dict[DeviceKey, tuple[SliceCount, ...]] = {}
    for device, resource in sorted(resolved.offered.keys() | held.keys()):
        offered = len(resolved.offered.get((device, resource), ())) if offered_known else None
        count = SliceCount(resource, offered, len(held.get((device, resource), ())))
        counts[device] = (*counts.get(device, ()), count)
    return counts


def _resolve_allocation(
    resolved: Resolved, inventory: Inventory, systems: Sequence[System], allocation: Allocation
) -> None:
    system, claim = _claim(inventory, systems, allocation.resource, allocation.device_id)
    if system is None:
        return
    if claim.device is None:
        resolved.unresolved[allocation.resource].add(allocation.device_id)
        resolved.unresolved_holders.add(allocation.holder)
        return
    resolved.held[claim.device.key, allocation.resource, allocation.holder].add(allocation.device_id)
    _note(resolved, claim.device, system, claim)


def _claim(
    inventory: Inventory, systems: Sequence[System], resource: str, device_id: str
) -> tuple[System | None, Claim]:
    """Return the system that knows the device; else one that only knows the id as its own."""
    own: tuple[System | None, Claim] = None, Claim()
    for system in systems:
        claim = system.claim(inventory, resource, device_id)
        if claim is not None and claim.device is not None:
            return system, claim
        if claim is not None and own[0] is None:
            own = system, claim
    return own


def _note(resolved: Resolved, device: Device, system: System, claim: Claim) -> None:
    resolved.systems.setdefault(device.key, system)
    if claim.replica:
        resolved.replicated.add(device.key)
