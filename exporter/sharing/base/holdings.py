"""The holdings of the node, from the answers of all systems.

``KeptHoldings`` keeps them from poll to poll while their inputs are unchanged: pods come and go in minutes,
and polls in seconds. The systems get only the fixed part of a GPU, so that holdings cannot depend on anything
that is not compared. What this saves: docs/decisions.md.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from exporter.model import (
    Allocations,
    ContainerRef,
    DeviceKey,
    DeviceProcess,
    DeviceSharing,
    GpuIdentity,
    GpuReading,
    Holding,
    Holdings,
    Memory,
    MigReading,
)
from exporter.model.kubelet import worst_health
from exporter.sharing.base import Entitled, Grant, HeldSlices, Offer, System, guarded
from exporter.sharing.base.inventory import Device, parse_device_id
from exporter.sharing.base.resolve import Resolved, resolve, slice_counts
from exporter.sharing.base.view import NodeFacts, View

Resolve = Callable[[tuple[GpuReading, ...], Allocations | None, NodeFacts], Holdings]
MPS = "mps"


def holdings_of(view: View, systems: Sequence[System]) -> Holdings:
    """Return every holding of the node; ``systems`` come in order of precedence."""
    return holdings_from(resolve(view, systems), view, systems)


def holdings_from(resolved: Resolved, view: View, systems: Sequence[System]) -> Holdings:
    """Return every holding of the node, given the resolved answers of the systems."""
    node = _HeldDevices(view, systems, resolved)
    unresolved = Counter({resource: len(ids) for resource, ids in resolved.unresolved.items()})
    return Holdings(
        known=True,
        holdings=tuple(sorted(node.holdings(), key=lambda held: (held.device, held.holder, held.resource))),
        devices={key: node.sharing_of_device(key) for key in node.devices},
        unresolved=dict(sorted((unresolved + resolved.missing).items())),
        unresolved_holders=frozenset(resolved.unresolved_holders),
        unknown_drivers=frozenset(resolved.unknown_drivers),
        unread=tuple(node.unread()),
        unplaced=frozenset(resolved.unplaced),
        uncounted=frozenset(resolved.uncounted),
        offered=None if view.allocations.offered is None else frozenset(resolved.on_offer),
        may_be_offered=frozenset(resolved.may_be_offered),
        withdrawn=frozenset(resolved.withdrawn),
        contested=node.contested,
        listed=view.allocations.listed,
        all_listed=view.facts.all_listed,
        blind={
            system.name: system.blind_without_pods
            for system in systems
            if guarded(system, system.blind, otherwise=False)
        },
    )


class _HeldDevices:
    """The devices of the node and the systems that share them."""

    def __init__(self, view: View, systems: Sequence[System], resolved: Resolved) -> None:
        self._view = view
        self._resolved = resolved
        self._known = {device.key for device in view.inventory.devices}
        self._offered_known = view.allocations.offered is not None
        self._slices = slice_counts(resolved, self._offered_known)
        if not view.facts.all_listed:
            self._slices = {
                key: tuple(count._replace(allocated=None) for count in counts)
                for key, counts in self._slices.items()
            }
        self._by_vendor = {system.vendor: system for system in reversed(systems)}
        self.devices = resolved.devices | {device.key: device for device in view.inventory.devices}
        self._shared: dict[tuple[DeviceKey, System], DeviceSharing] = {}
        self.contested = find_contested(
            view, resolved, lambda key, system: self._intended(key, system).exclusive
        )

    def sharing_of_device(self, key: DeviceKey) -> DeviceSharing:
        """Return the sharing of a device, by the first of its systems, else by the system of its vendor."""
        vendor = self.devices[key].gpu.identity.vendor
        system = next(iter(self._resolved.systems(key)), None) or self._by_vendor.get(vendor)
        if system is None:
            return DeviceSharing(slices=self._slices.get(key, ()))
        sharing = self._sharing(key, system)
        if key in self._resolved.unplaced and sharing.sharing == "none":
            # An unknown container may share it in a mode that nothing on the device shows.
            sharing = replace(sharing, sharing="unknown", isolation="")
        resources = {count.resource for count in sharing.slices}
        extra = [count for count in self._slices.get(key, ()) if count.resource not in resources]
        return replace(sharing, slices=tuple(sorted((*sharing.slices, *extra)))) if extra else sharing

    def holdings(self) -> Iterator[Holding]:
        """Yield the holdings by grants, then those by ids."""
        for system, device, grant in chain(self._resolved.grants, self._grants_by_ids()):
            sharing = self._sharing(device.key, system)
            unsure = grant.holder in self.contested.get(device.key, ())
            yield Holding(
                holder=grant.holder,
                device=device.key,
                resource=grant.resource,
                slices=grant.slices,
                memory_entitled=None if unsure else grant.memory_entitled,
                compute_entitled=None if unsure else grant.compute_entitled,
                meter=grant.meter,
                counted_elsewhere=grant.counted_elsewhere,
                claims=grant.claims,
                health=grant.health,
                sharing=sharing.sharing,
                isolation=sharing.isolation,
            )

    def _grants_by_ids(self) -> Iterator[tuple[System, Device, Grant]]:
        for (key, resource, holder), ids in self._resolved.held.items():
            system, device = self._resolved.system_of[key, resource, holder], self.devices[key]
            held = HeldSlices(holder, resource, len(ids))
            ask = partial(system.entitlement, device, self._sharing(key, system), held)
            entitled = guarded(system, ask, Entitled())
            healths = (
                entry.health
                for entry in self._view.health(holder)
                if entry.resource == resource and entry.device_id in ids
            )
            grant = Grant(
                holder=holder,
                resource=resource,
                device=device,
                slices=len(ids),
                memory_entitled=entitled.memory,
                compute_entitled=entitled.compute,
                meter=entitled.meter,
                health=worst_health(healths),
            )
            yield system, device, grant

    def unread(self) -> Iterable[GpuIdentity]:
        """Return the held devices that no driver reads."""
        unread = {key: device for key, device in self.devices.items() if key not in self._known}
        return (unread[key].gpu.identity for key in sorted(unread))

    def _sharing(self, key: DeviceKey, system: System) -> DeviceSharing:
        sharing = self._intended(key, system)
        if key in self._resolved.unplaced and sharing.exclusive:
            # An unknown container may have it too.
            sharing = replace(sharing, isolation="", exclusive=False)
        if key not in self.contested:
            return sharing
        isolation = "none" if sharing.isolation == "hard" else sharing.isolation
        return replace(sharing, isolation=isolation, exclusive=False)

    def _intended(self, key: DeviceKey, system: System) -> DeviceSharing:
        """Return how a system shares a device, whatever other holders it has."""
        if (key, system) not in self._shared:
            owners = self._resolved.owners
            slices = tuple(
                count
                for count in self._slices.get(key, ())
                if system in owners.get((key, count.resource), ())
            )
            offer = Offer(slices, (key, system) in self._resolved.replicated, self._offered_known)
            ask = partial(system.sharing, self.devices[key], offer)
            sharing = guarded(system, ask, DeviceSharing(slices=slices))
            self._shared[key, system] = replace(
                sharing, exclusive=sharing.exclusive or self._is_exclusive(key)
            )
        return self._shared[key, system]

    def _is_exclusive(self, key: DeviceKey) -> bool:
        on_device = [grant for _, device, grant in self._resolved.grants if device.key == key]
        by_ids = any(device == key for device, _, _ in self._resolved.held)
        return not by_ids and len(on_device) == 1 and on_device[0].exclusive


def find_contested(
    view: View, resolved: Resolved, is_exclusive: Callable[[DeviceKey, System], bool]
) -> Mapping[DeviceKey, tuple[ContainerRef, ...]]:
    """Return the containers of devices that one should have alone and another holds too; adds problems.

    Also those with the same id. The kubelet may give one id to two containers after a restart, and two
    plugins know nothing of each other. Which container is entitled is unknown, and nothing isolates them.

    ``is_exclusive`` returns True if a system gives out a device to one container at most.
    """
    holders: dict[DeviceKey, set[ContainerRef]] = defaultdict(set)
    by_id: dict[tuple[DeviceKey, str, str], set[ContainerRef]] = defaultdict(set)
    alone: set[DeviceKey] = set()
    for system, device, grant in resolved.grants:
        holders[device.key].add(grant.holder)
        if grant.exclusive or is_exclusive(device.key, system):
            alone.add(device.key)
    for (key, resource, holder), ids in resolved.held.items():
        holders[key].add(holder)
        for device_id in ids:
            by_id[key, resource, device_id].add(holder)
        if is_exclusive(key, resolved.system_of[key, resource, holder]):
            alone.add(key)
    for key, holder in _of_whole_gpus(view, resolved):
        holders[key].add(holder)
        alone.add(key)
    contested = {key: holders[key] for key in alone if len(holders[key]) > 1}
    for (key, _, _), same in by_id.items():
        if len(same) > 1:
            contested[key] = contested.get(key, set()) | same
    for key, refs in contested.items():
        names = ", ".join(f"{ref.namespace}/{ref.pod}/{ref.container}" for ref in sorted(refs))
        about = f"the entitlements of {key.mig_uuid or key.uuid}"
        view.object_to("device", "contested", about, f"it is held at once by {names}")
    return {key: tuple(sorted(refs)) for key, refs in sorted(contested.items())}


def _of_whole_gpus(view: View, resolved: Resolved) -> Iterator[tuple[DeviceKey, ContainerRef]]:
    """Yield the MIG devices of each GPU that an id names as a whole, with the holder of the id."""
    for holder, resource, device_id in view.allocations.allocated:
        unresolved = device_id in resolved.unresolved.get(resource, ())
        named = parse_device_id(device_id) if unresolved else None
        if named is not None and not named.the_gpu:
            yield from ((key, holder) for key in view.inventory.parts_of(named))


class KeptHoldings:
    """Calls ``resolve`` if devices, ids, pods or files differ from those of the last call.

    ``resolve`` must depend on its arguments only, and not on the time when the kubelet was read.
    """

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._inputs: tuple[Any, ...] | None = None
        self._holdings = Holdings(known=False)

    def of(self, gpus: Iterable[GpuReading], allocations: Allocations | None, facts: NodeFacts) -> Holdings:
        fixed = tuple(map(fixed_part, gpus))
        undated = None if allocations is None else replace(allocations, read_at=0.0)
        inputs = (fixed, undated, facts)
        if inputs != self._inputs:
            # A failed call is repeated at the next poll.
            self._inputs = None
            self._holdings = self._resolve(fixed, allocations, facts)
            self._inputs = inputs
        return self._holdings


def fixed_part(gpu: GpuReading) -> GpuReading:
    """Return a reading without use, except that of vGPUs, which their meters need."""
    return GpuReading(
        identity=gpu.identity,
        up=gpu.up,
        memory=_size(gpu.memory),
        compute_mode=gpu.compute_mode,
        virtualization=gpu.virtualization,
        vgpus=gpu.vgpus,
        mig_enabled=gpu.mig_enabled,
        mig_slices=gpu.mig_slices,
        mig=None if gpu.mig is None else tuple(map(_fixed_part, gpu.mig)),
        mig_complete=gpu.mig_complete,
        processes=_clients(gpu.processes),
    )


def _fixed_part(mig: MigReading) -> MigReading:
    return replace(
        mig,
        memory=_size(mig.memory),
        bar1=None,
        profiling=None,
        utilization_percent=None,
        processes=_clients(mig.processes),
        process_utilization=None,
    )


def _size(memory: Memory | None) -> Memory | None:
    # Holdings do not depend on the memory in use.
    return None if memory is None else Memory(total=memory.total, used=0, free=memory.total)


def _clients(processes: tuple[DeviceProcess, ...] | None) -> tuple[DeviceProcess, ...] | None:
    """Return one MPS client if there is any: it shows that MPS is in use."""
    if processes is None:
        return None
    client = next((process for process in processes if MPS in process.kinds), None)
    return () if client is None else (replace(client, memory=None),)
