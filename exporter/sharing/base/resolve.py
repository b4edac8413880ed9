"""The device of every grant and of every id of the kubelet, over all systems."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

from exporter.model import Allocation, Allocations, ContainerRef, DeviceKey, SliceCount
from exporter.sharing.base import Grant, Granted, Meaning, System, guarded
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.view import View

# The system that an id belongs to, and the meaning of the id.
OwnedId = tuple[System | None, Meaning]
WITHOUT_OWNER: OwnedId = None, Meaning()
# Device, resource, holder.
HeldKey = tuple[DeviceKey, str, ContainerRef]


@dataclass(slots=True)
class Resolved:
    """The resolved ids and grants of one poll; ``str`` in keys is a resource."""

    # Allocatable ids.
    offered: dict[tuple[DeviceKey, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    # Held ids, and the system that each belongs to.
    held: dict[HeldKey, set[str]] = field(default_factory=lambda: defaultdict(set))
    system_of: dict[HeldKey, System] = field(default_factory=dict)
    devices: dict[DeviceKey, Device] = field(default_factory=dict)  # the held devices
    grants: list[tuple[System, Device, Grant]] = field(default_factory=list)
    # Devices of which a system gives out several ids.
    replicated: set[tuple[DeviceKey, System]] = field(default_factory=set)
    # Ids without a known device, by resource; slices granted of devices that are not on this node.
    unresolved: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    missing: Counter[str] = field(default_factory=Counter)
    unresolved_holders: set[ContainerRef] = field(default_factory=set)
    unknown_drivers: set[str] = field(default_factory=set)
    # The systems that have a resource on a device, ordered by their first id or grant.
    owners: dict[tuple[DeviceKey, str], dict[System, None]] = field(default_factory=lambda: defaultdict(dict))
    settled: set[tuple[ContainerRef, str]] = field(default_factory=set)
    unplaced: set[DeviceKey] = field(default_factory=set)  # devices with unknown holders
    # What grants and ids without a known device may mean: a resource, and devices, None for a nominal id.
    doubts: set[tuple[str, frozenset[DeviceKey] | None]] = field(default_factory=set)
    # (device, resource) of which unknown containers hold an unknown number.
    uncounted: set[tuple[DeviceKey, str]] = field(default_factory=set)
    on_offer: set[DeviceKey] = field(default_factory=set)  # devices that new pods may get
    may_be_offered: set[DeviceKey] = field(default_factory=set)  # of ids on offer without a known device
    # Devices of ids that are unhealthy, with the resources of these.
    withdrawn: dict[DeviceKey, set[str]] = field(default_factory=lambda: defaultdict(set))

    def systems(self, device: DeviceKey) -> list[System]:
        """Return the systems that have a part in a device, ordered by their first id or grant."""
        owners = (systems for (key, _), systems in self.owners.items() if key == device)
        return list(dict.fromkeys(chain.from_iterable(owners)))


def resolve(view: View, systems: Sequence[System]) -> Resolved:
    """Return the device of every grant, and of every id that no grant settles.

    The holder of a nominal id may have any device with its resource on offer, or else any NVIDIA GPU without
    MIG.
    """
    resolved, allocations = Resolved(), view.allocations
    for system in systems:
        _take_grants(resolved, system)
    meanings = _Meanings(allocations, systems)
    # Sorted, because the first of several systems decides on the sharing of a device.
    for resource, device_id in sorted(allocations.offered or ()):
        owner, meaning = meanings.of(resource, device_id)
        if owner is not None and meaning.device is not None:
            resolved.offered[meaning.device.key, resource].add(device_id)
            _add_owner(resolved, meaning.device, resource, owner, meaning)
    _take_offers(resolved, meanings, view, systems)
    strays: list[Allocation] = []
    for allocation in sorted(allocations.allocated):
        if (allocation.holder, allocation.resource) not in resolved.settled:
            strays += _resolve_allocation(resolved, meanings, allocation)
    _take_strays(resolved, strays)
    taken = {device.key for _, device, grant in resolved.grants if grant.exclusive}
    cards = {gpu.key for gpu in view.inventory.whole()}
    for resource, devices in resolved.doubts:
        offering = {device for device, offered in resolved.offered if offered == resource}
        # An unhealthy device leaves the offer, and its holders stay.
        having = {device for device, owned in resolved.owners if owned == resource}
        if devices is None:
            doubted = frozenset((having if offering else cards) - taken)
        else:
            likely = devices & having if devices & offering else devices
            doubted = likely - taken - _held_whole(resolved, but=resource)
        resolved.unplaced |= doubted
        resolved.uncounted |= {(device, resource) for device in doubted}
    return resolved


def _held_whole(resolved: Resolved, but: str) -> set[DeviceKey]:
    """Return the devices that a container holds whole, by the id of a plugin for another resource."""
    return {
        device
        for (device, resource, holder), system in resolved.system_of.items()
        if resource != but and (device, system) not in resolved.replicated
    }


class _Meanings:
    """The owners of ids, cached: a plugin may have tens of thousands of ids."""

    def __init__(self, allocations: Allocations, systems: Sequence[System]) -> None:
        resources = {device.resource for device in allocations.offered or ()}
        resources |= {allocation.resource for allocation in allocations.allocated}
        self._asked = {
            name: [
                system for system in systems if guarded(system, partial(system.knows, name), otherwise=False)
            ]
            for name in resources
        }
        self._known: dict[tuple[str, str], OwnedId] = {}

    def of(self, resource: str, device_id: str) -> OwnedId:
        """Return the first system with a device or a nominal meaning for an id, else the first with any."""
        key = resource, device_id
        if key not in self._known:
            self._known[key] = self._meaning(resource, device_id)
        return self._known[key]

    def _meaning(self, resource: str, device_id: str) -> OwnedId:
        weak = WITHOUT_OWNER
        for system in self._asked[resource]:
            meaning = guarded(system, partial(system.meaning, resource, device_id), None)
            if meaning is None:
                continue
            if meaning.device is not None or meaning.nominal:
                return system, meaning
            if weak is WITHOUT_OWNER:
                weak = system, meaning
        return weak


def _take_offers(resolved: Resolved, meanings: _Meanings, view: View, systems: Sequence[System]) -> None:
    """Add the devices that new pods may get, and those that were withdrawn from the offer.

    A DRA driver, a system that grants what the kubelet does not list, and ids of amounts offer all devices of
    their maker. An id without a known device may offer those that it may mean.
    """
    allocations = view.allocations
    listed = [held for held in allocations.offered or () if held.resource not in allocations.kept]
    resources = {device.resource for device in listed}
    makers = {system.maker for system in systems if guarded(system, system.offers_unlisted, otherwise=False)}
    makers |= {system.maker for system, _, grant in resolved.grants if grant.resource not in resources}
    unclear: set[str] = set()
    for resource, device_id in listed:
        owner, meaning = meanings.of(resource, device_id)
        if meaning.device is not None:
            resolved.on_offer.add(meaning.device.key)
        elif owner is not None and meaning.nominal:
            makers.add(owner.maker)
        elif owner is not None:
            may_be = owner.may_be(device_id)
            resolved.may_be_offered |= may_be or frozenset()
            unclear |= {owner.maker} if may_be is None else set()
    for resource, device_id in allocations.withdrawn:
        owner, meaning = meanings.of(resource, device_id)
        if owner is not None and meaning.device is not None:
            resolved.withdrawn[meaning.device.key].add(resource)
            _add_owner(resolved, meaning.device, resource, owner, meaning)
    devices = view.inventory.devices
    resolved.on_offer |= {device.key for device in devices if device.gpu.identity.vendor in makers}
    resolved.may_be_offered |= {device.key for device in devices if device.gpu.identity.vendor in unclear}


def slice_counts(resolved: Resolved, offered_known: bool) -> dict[DeviceKey, tuple[SliceCount, ...]]:
    """Return the slices of every resource by device; an id held by two containers is one slice.

    The allocatable slices of a resource that has grants but no ids are unknown.
    """
    held: dict[tuple[DeviceKey, str], set[str]] = defaultdict(set)
    for (device, resource, _), ids in resolved.held.items():
        held[device, resource] |= ids
    allocated = defaultdict(int, {key: len(ids) for key, ids in held.items()})
    for _, of, grant in resolved.grants:
        allocated[of.key, grant.resource] += grant.slices
    in_slices = {resource for _, resource in (*resolved.offered, *held)}
    counts: dict[DeviceKey, tuple[SliceCount, ...]] = {}
    withdrawn = {(device, resource) for device, names in resolved.withdrawn.items() for resource in names}
    for device, resource in sorted(resolved.offered.keys() | allocated.keys() | withdrawn):
        counted = offered_known and resource in in_slices
        offered = len(resolved.offered.get((device, resource), ())) if counted else None
        doubtful = (device, resource) in resolved.uncounted
        held_here = None if doubtful else allocated.get((device, resource), 0)
        count = SliceCount(resource, offered, held_here)
        counts[device] = (*counts.get(device, ()), count)
    return counts


def _take_grants(resolved: Resolved, system: System) -> None:
    """Add the grants of a system to containers that no earlier system has settled."""
    granted = guarded(system, system.grants, Granted())
    for grant in granted.grants:
        if (grant.holder, grant.resource) in resolved.settled:
            continue
        device = grant.device
        if device is not None and not _has_own_uuid(system, device):
            text = "is the UUID of a partitioned GPU"
            system.view.object_to(system.name, "device", device.key.uuid, text)
            device = None
        if device is not None:
            resolved.owners[device.key, grant.resource][system] = None
        if device is not None and not grant.for_unknown:
            resolved.grants.append((system, device, grant))
            resolved.devices[device.key] = device
            continue
        resolved.missing[grant.resource] += grant.slices
        resolved.unresolved_holders.add(grant.holder)
        if device is None:
            may_be = _of_maker(system) if grant.may_be is None else grant.may_be
            resolved.doubts.add((grant.resource, may_be))
        else:
            resolved.unplaced.add(device.key)
            resolved.uncounted.add((device.key, grant.resource))
    resolved.unknown_drivers |= granted.unknown_drivers
    for key, resource in granted.unplaced:
        resolved.owners[key, resource][system] = None
        resolved.unplaced.add(key)
        resolved.uncounted.add((key, resource))
    resolved.settled |= granted.settled


def _of_maker(system: System) -> frozenset[DeviceKey]:
    """Return the devices of this node that a system may have given out."""
    devices = system.view.inventory.devices
    return frozenset(device.key for device in devices if device.gpu.identity.vendor == system.maker)


def _has_own_uuid(system: System, device: Device) -> bool:
    """Return False if a device that no driver reads has the UUID of a partitioned GPU."""
    inventory = system.view.inventory
    return device.key in inventory.keys or device.key.uuid not in inventory.gpu_uuids


def _take_strays(resolved: Resolved, strays: Iterable[Allocation]) -> None:
    """Add the ids that no system knows, if other ids of their resource are of devices of this node."""
    devices: dict[str, set[DeviceKey]] = defaultdict(set)
    for device, resource in resolved.owners:
        devices[resource].add(device)
    for holder, resource, device_id in strays:
        if resource in devices:
            resolved.unresolved[resource].add(device_id)
            resolved.unresolved_holders.add(holder)
            resolved.doubts.add((resource, frozenset(devices[resource])))


def _resolve_allocation(resolved: Resolved, meanings: _Meanings, allocation: Allocation) -> list[Allocation]:
    """Add an id and its holder; return it if no system knows it."""
    system, meaning = meanings.of(allocation.resource, allocation.device_id)
    if system is None:
        return [allocation]
    if meaning.device is None or meaning.nominal:
        resolved.unresolved[allocation.resource].add(allocation.device_id)
        resolved.unresolved_holders.add(allocation.holder)
        may_be = None
        if not meaning.nominal:
            # A plugin that ignores MIG gives out the whole GPU: its holder may use any MIG device of it.
            may_be = system.may_be(allocation.device_id)
            may_be = _of_maker(system) if may_be is None else may_be
        resolved.doubts.add((allocation.resource, may_be))
        return []
    held = meaning.device.key, allocation.resource, allocation.holder
    resolved.held[held].add(allocation.device_id)
    resolved.system_of[held] = system
    resolved.devices[meaning.device.key] = meaning.device
    _add_owner(resolved, meaning.device, allocation.resource, system, meaning)
    return []


def _add_owner(resolved: Resolved, device: Device, resource: str, system: System, meaning: Meaning) -> None:
    resolved.owners[device.key, resource][system] = None
    if meaning.replica:
        resolved.replicated.add((device.key, system))
