"""NVIDIA's device plugin (and GKE's): exclusive GPUs, time-slicing, MPS, MIG, and MIG with time-slicing.

A device id says which device it is and whether it is given out in replicas; how many replicas there are is
what the kubelet says is allocatable. Who enforces the shares is told by the device: MPS puts it into the
exclusive-process compute mode and its clients stand in a list of their own.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from exporter.model import (
    Allocation,
    Allocations,
    ContainerRef,
    DeviceKey,
    DeviceSharing,
    Holding,
    SliceCount,
)
from exporter.sharing.device_id import DeviceId, parse_device_id
from exporter.sharing.inventory import Device, Inventory

RESOURCES = re.compile(r"nvidia\.com/(gpu|mig-[^/]+?)(\.shared)?")
# MPS sets the memory limit of a client in whole mebibytes.
MEBIBYTE = 1 << 20


@dataclass(slots=True)
class Resolved:
    """The ids of one poll sorted by the device that they name."""

    offered: dict[tuple[DeviceKey, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    held: dict[tuple[DeviceKey, str, ContainerRef], set[str]] = field(
        default_factory=lambda: defaultdict(set)
    )
    replicated: set[DeviceKey] = field(default_factory=set)
    unresolved: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    unresolved_holders: set[ContainerRef] = field(default_factory=set)


class Resources:
    """Which resources are NVIDIA's: the plugin's own names, and those that match an extra pattern."""

    def __init__(self, patterns: Iterable[re.Pattern[str]] = ()) -> None:
        self._patterns = (RESOURCES, *patterns)

    def named(self, resource: str) -> bool:
        """Whether the resource's name says that its ids are NVIDIA devices."""
        return any(pattern.fullmatch(resource) for pattern in self._patterns)


def resolve(inventory: Inventory, allocations: Allocations, resources: Resources) -> Resolved:
    """Find the device of every id.

    A resource under any other name counts too where its id is the UUID of a device of this node: plugins
    can be told to rename their resources.
    """
    resolved = Resolved()
    for offer in allocations.offered or ():
        device_id, device = _find(inventory, offer.device_id, resources.named(offer.resource))
        if device is not None and device_id is not None:
            resolved.offered[device.key, offer.resource].add(offer.device_id)
            _note_replica(resolved, device, device_id)
    for allocation in allocations.allocated:
        _resolve_allocation(resolved, inventory, allocation, resources)
    return resolved


def _resolve_allocation(
    resolved: Resolved, inventory: Inventory, allocation: Allocation, resources: Resources
) -> None:
    named = resources.named(allocation.resource)
    device_id, device = _find(inventory, allocation.device_id, named)
    if device is not None and device_id is not None:
        resolved.held[device.key, allocation.resource, allocation.holder].add(allocation.device_id)
        _note_replica(resolved, device, device_id)
    elif named:
        resolved.unresolved[allocation.resource].add(allocation.device_id)
        resolved.unresolved_holders.add(allocation.holder)


def _find(inventory: Inventory, text: str, named: bool) -> tuple[DeviceId | None, Device | None]:
    device_id = parse_device_id(text)
    if device_id is None or not (named or device_id.uuid):
        return None, None
    return device_id, inventory.find(device_id)


def _note_replica(resolved: Resolved, device: Device, device_id: DeviceId) -> None:
    if device_id.replica:
        resolved.replicated.add(device.key)


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


def device_sharing(
    device: Device, slices: tuple[SliceCount, ...], replicated: bool, offered_known: bool
) -> DeviceSharing:
    """Tell the mode of a device and what keeps its holders apart."""
    if device.mig is not None:
        mode, isolation = ("mig-time-slicing", "none") if replicated else ("mig", "hard")
    elif not slices:
        mode, isolation = ("none", "none") if offered_known and device.gpu.up else ("unknown", "")
    elif not replicated:
        mode, isolation = "exclusive", "hard"
    elif device.gpu.processes is None and device.gpu.compute_mode is None:
        # Nothing is left that would tell MPS from time-slicing.
        mode, isolation = "unknown", ""
    else:
        mode, isolation = ("mps", "soft") if _serves_mps(device) else ("time-slicing", "none")
    exclusive = not replicated and isolation == "hard"
    return DeviceSharing(sharing=mode, isolation=isolation, exclusive=exclusive, slices=slices)


def _serves_mps(device: Device) -> bool:
    clients = any("mps" in process.kinds for process in device.gpu.processes or ())
    return clients or device.gpu.compute_mode == "exclusive_process"


def holding(
    device: Device, sharing: DeviceSharing, resource: str, holder: ContainerRef, slices: int
) -> Holding:
    """State what a container is entitled to: the device, or its replicas' share of it.

    The share is enforced by MPS and only notional on time-slicing, where a replica guarantees nothing.
    """
    replicas = 1 if sharing.exclusive else _offered(sharing, resource)
    known = replicas is not None and replicas >= slices
    return Holding(
        holder=holder,
        device=device.key,
        resource=resource,
        slices=slices,
        memory_entitled=_memory(device, sharing, slices, replicas) if known and replicas else None,
        compute_entitled=_compute(device, slices, replicas) if known and replicas else None,
    )


def _offered(sharing: DeviceSharing, resource: str) -> int | None:
    return next((count.offered for count in sharing.slices if count.resource == resource), None)


def _memory(device: Device, sharing: DeviceSharing, slices: int, replicas: int) -> int | None:
    reading = device.mig if device.mig is not None else device.gpu
    shared = device.mig is not None and device.mig.memory_shared
    if reading.memory is None or shared:
        return None
    if sharing.sharing == "mps":
        return reading.memory.total // replicas // MEBIBYTE * MEBIBYTE * slices
    return reading.memory.total * slices // replicas


def _compute(device: Device, slices: int, replicas: int) -> float | None:
    if device.mig is None:
        return slices / replicas
    if device.mig.compute_slices is None or not device.gpu.mig_slices:
        return None
    return device.mig.compute_slices * slices / (device.gpu.mig_slices * replicas)
