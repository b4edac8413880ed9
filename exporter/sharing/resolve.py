"""Grants and the kubelet's ids sorted by the device that they are about, whichever system they come from."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from exporter.model import Allocation, Allocations, ContainerRef, DeviceKey, SliceCount
from exporter.sharing.inventory import Device
from exporter.sharing.system import Claim, Grant, Granted, System, guarded


@dataclass(slots=True)
class Resolved:
    """What is told of one poll.

    ``missing`` counts what is granted of devices that are not here. ``owners`` is whose a resource is on a
    device, the first to tell counting. ``unplaced`` are devices with holders that are not known.
    """

    offered: dict[tuple[DeviceKey, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    held: dict[tuple[DeviceKey, str, ContainerRef], set[str]] = field(
        default_factory=lambda: defaultdict(set)
    )
    grants: list[tuple[System, Device, Grant]] = field(default_factory=list)
    replicated: set[tuple[DeviceKey, System]] = field(default_factory=set)
    unresolved: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    missing: Counter[str] = field(default_factory=Counter)
    unresolved_holders: set[ContainerRef] = field(default_factory=set)
    owners: dict[tuple[DeviceKey, str], System] = field(default_factory=dict)
    settled: set[tuple[ContainerRef, str]] = field(default_factory=set)
    unplaced: set[DeviceKey] = field(default_factory=set)

    def systems(self, device: DeviceKey) -> list[System]:
        """Return the systems that have a part in a device, in the order of their first word on it."""
        return list(dict.fromkeys(system for (key, _), system in self.owners.items() if key == device))


def resolve(allocations: Allocations, systems: Sequence[System]) -> Resolved:
    """Find the device of every grant and of every id that no grant is about."""
    resolved = Resolved()
    for system in systems:
        _take_grants(resolved, system)
    # In one order, because of two systems the first to tell has the word on a resource of a device.
    asked = _asked(allocations, systems)
    for offer in sorted(allocations.offered or ()):
        owner, claim = _claim(asked[offer.resource], offer.resource, offer.device_id)
        if owner is not None and claim.device is not None:
            resolved.offered[claim.device.key, offer.resource].add(offer.device_id)
            _note(resolved, claim.device, offer.resource, owner, claim)
    for allocation in sorted(allocations.allocated):
        if (allocation.holder, allocation.resource) not in resolved.settled:
            _resolve_allocation(resolved, asked[allocation.resource], allocation)
    return resolved


def _asked(allocations: Allocations, systems: Sequence[System]) -> dict[str, list[System]]:
    """Choose the systems to ask for the ids of each resource: a plugin may offer tens of thousands."""
    resources = {each.resource for each in allocations.offered or ()}
    resources |= {each.resource for each in allocations.allocated}
    return {resource: [system for system in systems if system.knows(resource)] for resource in resources}


def slice_counts(resolved: Resolved, offered_known: bool) -> dict[DeviceKey, tuple[SliceCount, ...]]:
    """Count slices of every resource that is offered or held on a device; an id held twice is one slice.

    What is granted of a resource without any ids is not offered in slices.
    """
    held: dict[tuple[DeviceKey, str], set[str]] = defaultdict(set)
    for (device, resource, _), ids in resolved.held.items():
        held[device, resource] |= ids
    allocated = defaultdict(int, {place: len(ids) for place, ids in held.items()})
    for _, of, grant in resolved.grants:
        allocated[of.key, grant.resource] += grant.slices
    in_slices = {resource for _, resource in (*resolved.offered, *held)}
    counts: dict[DeviceKey, tuple[SliceCount, ...]] = {}
    for device, resource in sorted(resolved.offered.keys() | allocated.keys()):
        told = offered_known and resource in in_slices
        offered = len(resolved.offered.get((device, resource), ())) if told else None
        count = SliceCount(resource, offered, allocated.get((device, resource), 0))
        counts[device] = (*counts.get(device, ()), count)
    return counts


def own_counts(
    resolved: Resolved, device: DeviceKey, system: System, counts: Iterable[SliceCount]
) -> tuple[SliceCount, ...]:
    """Keep the counts of those resources that are a system's own on a device."""
    return tuple(each for each in counts if resolved.owners.get((device, each.resource)) is system)


def _take_grants(resolved: Resolved, system: System) -> None:
    """Take what a system knows of containers that no system before it has settled."""
    granted = guarded(system, system.grants, Granted())
    for grant in granted.grants:
        if (grant.holder, grant.resource) in resolved.settled:
            continue
        device = grant.device
        if device is not None and not _is_its_uuid(system, device):
            system.view.object_to(system.name, "device", device.key.uuid, "is the UUID of a GPU that is cut")
            device = None
        if device is not None:
            resolved.owners.setdefault((device.key, grant.resource), system)
        if device is not None and not grant.for_unknown:
            resolved.grants.append((system, device, grant))
            continue
        resolved.missing[grant.resource] += grant.slices
        resolved.unresolved_holders.add(grant.holder)
        if device is not None:
            resolved.unplaced.add(device.key)
    resolved.settled |= granted.settled


def _is_its_uuid(system: System, device: Device) -> bool:
    """Whether a device's name is its own: one that no driver reads may be called like a GPU that is cut."""
    inventory = system.view.inventory
    return device.key in inventory.keys or device.key.uuid not in inventory.gpu_uuids


def _resolve_allocation(resolved: Resolved, systems: Sequence[System], allocation: Allocation) -> None:
    system, claim = _claim(systems, allocation.resource, allocation.device_id)
    if system is None:
        return
    if claim.device is None or claim.nominal:
        resolved.unresolved[allocation.resource].add(allocation.device_id)
        resolved.unresolved_holders.add(allocation.holder)
        return
    resolved.held[claim.device.key, allocation.resource, allocation.holder].add(allocation.device_id)
    _note(resolved, claim.device, allocation.resource, system, claim)


def _claim(systems: Sequence[System], resource: str, device_id: str) -> tuple[System | None, Claim]:
    """Return the system that knows the device; else one that only knows the id as its own."""
    own: tuple[System | None, Claim] = None, Claim()
    for system in systems:
        claim = _of(system, resource, device_id)
        if claim is not None and claim.device is not None:
            return system, claim
        if claim is not None and own[0] is None:
            own = system, claim
    return own


def _of(system: System, resource: str, device_id: str) -> Claim | None:
    return guarded(system, lambda: system.claim(resource, device_id), None)


def _note(resolved: Resolved, device: Device, resource: str, system: System, claim: Claim) -> None:
    resolved.owners.setdefault((device.key, resource), system)
    if claim.replica:
        resolved.replicated.add((device.key, system))
