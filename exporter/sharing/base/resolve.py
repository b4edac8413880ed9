"""Grants and the kubelet's ids sorted by the device that they are about, whichever system they come from."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

from exporter.model import Allocation, Allocations, ContainerRef, DeviceKey, SliceCount
from exporter.sharing.base.inventory import Device, parse_device_id
from exporter.sharing.base.system import Claim, Grant, Granted, System, guarded

# Whose an id is, and what is claimed of it.
Owned = tuple[System | None, Claim]
NOBODYS: Owned = None, Claim()


@dataclass(slots=True)
class Resolved:
    """What is told of one poll.

    ``devices`` are those that are held, ``missing`` counts what is granted of devices that are not here.
    ``owners`` are the systems that have a resource on a device, in order of their first word; ``told_by``
    says whose a held id is. ``unplaced`` are devices with holders that are not known, ``nowhere`` the
    resources of which some is held on one of them.
    """

    offered: dict[tuple[DeviceKey, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    held: dict[tuple[DeviceKey, str, ContainerRef], set[str]] = field(
        default_factory=lambda: defaultdict(set)
    )
    devices: dict[DeviceKey, Device] = field(default_factory=dict)
    grants: list[tuple[System, Device, Grant]] = field(default_factory=list)
    replicated: set[tuple[DeviceKey, System]] = field(default_factory=set)
    unresolved: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    missing: Counter[str] = field(default_factory=Counter)
    unresolved_holders: set[ContainerRef] = field(default_factory=set)
    told_by: dict[tuple[DeviceKey, str, ContainerRef], System] = field(default_factory=dict)
    owners: dict[tuple[DeviceKey, str], dict[System, None]] = field(default_factory=lambda: defaultdict(dict))
    settled: set[tuple[ContainerRef, str]] = field(default_factory=set)
    unplaced: set[DeviceKey] = field(default_factory=set)
    nowhere: set[str] = field(default_factory=set)

    def systems(self, device: DeviceKey) -> list[System]:
        """Return the systems that have a part in a device, in the order of their first word on it."""
        owners = (systems for (key, _), systems in self.owners.items() if key == device)
        return list(dict.fromkeys(chain.from_iterable(owners)))


def resolve(
    allocations: Allocations, systems: Sequence[System], devices: Collection[DeviceKey] = ()
) -> Resolved:
    """Find the device of every grant and of every id that no grant is about.

    An id that may be of any device that offers its resource may be of any of ``devices`` where none does.
    """
    resolved = Resolved()
    for system in systems:
        _take_grants(resolved, system)
    claims = _Claims(allocations, systems)
    # In one order, because of two systems the first to tell has the word on a device.
    for offer in sorted(allocations.offered or ()):
        owner, claim = claims.of(offer.resource, offer.device_id)
        if owner is not None and claim.device is not None:
            resolved.offered[claim.device.key, offer.resource].add(offer.device_id)
            _note(resolved, claim.device, offer.resource, owner, claim)
    for allocation in sorted(allocations.allocated):
        if (allocation.holder, allocation.resource) not in resolved.settled:
            _resolve_allocation(resolved, claims, allocation)
    taken = {device.key for _, device, grant in resolved.grants if grant.exclusive}
    for resource in resolved.nowhere:
        offering = {device for device, offered in resolved.offered if offered == resource}
        resolved.unplaced |= (offering or set(devices)) - taken
    return resolved


class _Claims:
    """Whose the ids are. A plugin may offer tens of thousands: each is asked about once."""

    def __init__(self, allocations: Allocations, systems: Sequence[System]) -> None:
        resources = {device.resource for device in allocations.offered or ()}
        resources |= {allocation.resource for allocation in allocations.allocated}
        self._asked = {name: [system for system in systems if _knows(system, name)] for name in resources}
        self._known: dict[tuple[str, str], Owned] = {}

    def of(self, resource: str, device_id: str) -> Owned:
        """Return the system that is sure of the id or knows its device; else one that only claims it."""
        known = self._known.get((resource, device_id))
        if known is None:
            known = self._known[resource, device_id] = self._claim(resource, device_id)
        return known

    def _claim(self, resource: str, device_id: str) -> Owned:
        own = NOBODYS
        for system in self._asked[resource]:
            try:
                claim = system.claim(resource, device_id)
            except Exception as error:  # noqa: BLE001 - whatever one system meets, the others are told
                system.fails(error)
                continue
            if claim is None:
                continue
            if claim.device is not None or claim.nominal:
                return system, claim
            if own is NOBODYS:
                own = system, claim
        return own


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
        counted = offered_known and resource in in_slices
        offered = len(resolved.offered.get((device, resource), ())) if counted else None
        doubtful = resource in resolved.nowhere and device in resolved.unplaced
        held_here = None if doubtful else allocated.get((device, resource), 0)
        count = SliceCount(resource, offered, held_here)
        counts[device] = (*counts.get(device, ()), count)
    return counts


def own_counts(
    resolved: Resolved, device: DeviceKey, system: System, counts: Iterable[SliceCount]
) -> tuple[SliceCount, ...]:
    """Keep the counts of those resources that are a system's own on a device."""
    return tuple(count for count in counts if system in resolved.owners.get((device, count.resource), ()))


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
            resolved.owners[device.key, grant.resource][system] = None
        if device is not None and not grant.for_unknown:
            resolved.grants.append((system, device, grant))
            resolved.devices[device.key] = device
            continue
        resolved.missing[grant.resource] += grant.slices
        resolved.unresolved_holders.add(grant.holder)
        if device is not None:
            resolved.unplaced.add(device.key)
    for key, resource in granted.unplaced:
        resolved.owners[key, resource][system] = None
        resolved.unplaced.add(key)
    resolved.settled |= granted.settled


def _is_its_uuid(system: System, device: Device) -> bool:
    """Whether a device's name is its own: one that no driver reads may be called like a GPU that is cut."""
    inventory = system.view.inventory
    return device.key in inventory.keys or device.key.uuid not in inventory.gpu_uuids


def _resolve_allocation(resolved: Resolved, claims: _Claims, allocation: Allocation) -> None:
    system, claim = claims.of(allocation.resource, allocation.device_id)
    if system is None:
        return
    if claim.device is None or claim.nominal:
        resolved.unresolved[allocation.resource].add(allocation.device_id)
        resolved.unresolved_holders.add(allocation.holder)
        if claim.nominal:
            resolved.nowhere.add(allocation.resource)
        elif (named := parse_device_id(allocation.device_id)) is not None:
            # A plugin that leaves MIG alone gives out a GPU that is cut, and with it perhaps a part of it.
            resolved.unplaced |= system.view.inventory.parts_of(named)
        return
    held = claim.device.key, allocation.resource, allocation.holder
    resolved.held[held].add(allocation.device_id)
    resolved.told_by[held] = system
    resolved.devices[claim.device.key] = claim.device
    _note(resolved, claim.device, allocation.resource, system, claim)


def _knows(system: System, resource: str) -> bool:
    return guarded(system, lambda: system.knows(resource), otherwise=False)


def _note(resolved: Resolved, device: Device, resource: str, system: System, claim: Claim) -> None:
    resolved.owners[device.key, resource][system] = None
    if claim.replica:
        resolved.replicated.add((device.key, system))
