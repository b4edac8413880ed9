"""NVIDIA's device plugin (and GKE's): exclusive GPUs, time-slicing, MPS, MIG, and MIG with time-slicing.

A device id has the device and, if it is shared, a replica. The number of replicas follows from the
allocatable and held ids, or from a node label if the kubelet reports no allocatable ids.
``nvidia_strategy.py`` decides between MPS and time-slicing.

Allocatable ids are healthy ones only, and the plugin may report a single replica of a GPU as unhealthy. That
does not change the share of the others, which depends on the number of replicas. They are numbered from 0.

=========================================================  ==============================================
ids of a resource                                          replicas of each of its devices
=========================================================  ==============================================
the node's capacity is known and fits allocatable ids      capacity divided by the number of devices
0 to k-1 are allocatable of some device                    k; missing ones of other devices are unhealthy
a number below the highest one is not allocatable          it counts, and is unhealthy
a higher number was allocatable since the plugin's start   it counts, and is unhealthy
several devices have all lost the same highest numbers     unknown: unhealthy, or the plugin has fewer now
the only device has lost several of the highest numbers    unknown, likewise
just the highest is missing since the plugin's restart     unknown, likewise
a held number is higher than all allocatable ones          unknown for that device
=========================================================  ==============================================
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

from exporter.model import Allocations, DeviceKey, DeviceSharing, NodeObject, SliceCount
from exporter.sharing.base import MEBIBYTE, Entitled, HeldSlices, Meaning, Offer, Read, System, first_match
from exporter.sharing.base.inventory import Device, DeviceId, parse_device_id
from exporter.sharing.base.view import View
from exporter.sharing.nvidia_strategy import LABELS, Strategies, Strategy, read_daemons

NUMBER = re.compile(r"[0-9]{1,9}")
# The number of an id of a whole device.
WHOLE = -1
RESOURCES = re.compile(r"nvidia\.com/(gpu|mig-[^/]+?)(\.shared)?")
# Mode and isolation of a GPU with replicas.
MODES: Mapping[Strategy, tuple[str, str]] = {
    "mps": ("mps", "soft"),
    "time-slicing": ("time-slicing", "none"),
    "": ("unknown", ""),
}


class DeviceSlices(NamedTuple):
    """The slices of a device. The last two are None while the kubelet lists no id of the resource."""

    slices: int | None
    unhealthy: int | None  # not allocatable
    lost: int | None  # neither allocatable nor held


UNKNOWN = DeviceSlices(None, None, None)


@dataclass(slots=True)
class Numbers:
    """The numbers of a device's ids of one resource, by the fields of Allocations."""

    offered: set[int] = field(default_factory=set)
    held: set[int] = field(default_factory=set)
    withdrawn: set[int] = field(default_factory=set)
    earlier: set[int] = field(default_factory=set)

    @property
    def known(self) -> set[int]:
        """The numbers since the plugin's start."""
        return self.offered | self.held | self.withdrawn


def slices_by_device(
    resource: str, allocations: Allocations, node: NodeObject | None
) -> Mapping[DeviceId, DeviceSlices]:
    """Return the slices of each device for a resource, without devices with an unknown number."""
    devices = _numbers(resource, allocations)
    offered = sum(len(numbers.offered) for numbers in devices.values())
    if not offered:
        return {}
    whole = {device: numbers for device, numbers in devices.items() if numbers.known == {WHOLE}}
    replicated = {device: numbers for device, numbers in devices.items() if WHOLE not in numbers.known}
    alike = len(devices) in (len(whole), len(replicated))
    capacity = _capacity(resource, node, offered) if alike else None
    counted = _of_whole(whole, capacity) | _of_replicas(replicated, capacity)
    if resource in allocations.kept:
        return {device: slices._replace(unhealthy=None, lost=None) for device, slices in counted.items()}
    return counted


def _numbers(resource: str, allocations: Allocations) -> dict[DeviceId, Numbers]:
    """Return the numbers of a resource's ids by device, without ids of an unknown form."""
    by_device: dict[DeviceId, Numbers] = {}
    sources = (
        ("offered", allocations.offered or ()),
        ("held", allocations.allocated),
        ("withdrawn", allocations.withdrawn),
        ("earlier", allocations.earlier),
    )
    for kind, ids in sources:
        for entry in ids:
            device = parse_device_id(entry.device_id) if entry.resource == resource else None
            if device is not None and (not device.replica or NUMBER.fullmatch(device.replica)):
                numbers = by_device.setdefault(replace(device, replica=""), Numbers())
                getattr(numbers, kind).add(int(device.replica) if device.replica else WHOLE)
    # A device with earlier ids only is no longer on the node.
    return {device: numbers for device, numbers in by_device.items() if numbers.known}


def _capacity(resource: str, node: NodeObject | None, offered: int) -> int | None:
    """Return the node's capacity, None if it is of other ids: the kubelet updates it seconds later."""
    if node is None or node.allocatable.get(resource) != offered:
        return None
    return node.capacity.get(resource)


def _of_whole(devices: Mapping[DeviceId, Numbers], capacity: int | None) -> dict[DeviceId, DeviceSlices]:
    """Return the slices of whole devices: not allocatable is unhealthy, unless the capacity excludes it."""
    offered = {device: DeviceSlices(1, 0, 0) for device, numbers in devices.items() if numbers.offered}
    if capacity is not None and capacity != len(devices):
        return offered
    missing = {device: DeviceSlices(1, 1, 0 if numbers.held else 1) for device, numbers in devices.items()}
    return missing | offered


def _of_replicas(devices: Mapping[DeviceId, Numbers], capacity: int | None) -> dict[DeviceId, DeviceSlices]:
    if not devices:
        return {}
    slices = _by_ids(devices.values()) if capacity is None else _by_capacity(devices.values(), capacity)
    if slices is None:
        return {}
    fitting = {
        device: numbers
        for device, numbers in devices.items()
        if max(numbers.offered | numbers.held, default=0) < slices
    }
    return {
        device: DeviceSlices(
            slices, slices - len(numbers.offered), slices - len(numbers.offered | numbers.held)
        )
        for device, numbers in fitting.items()
    }


def _by_capacity(devices: Collection[Numbers], capacity: int) -> int | None:
    slices, rest = divmod(capacity, len(devices))
    return slices if not rest and slices >= max(_top(numbers.offered) for numbers in devices) else None


def _by_ids(devices: Collection[Numbers]) -> int | None:
    now = max(_top(numbers.offered) for numbers in devices)
    since = max(_top(numbers.offered | numbers.withdrawn) for numbers in devices)
    lost = set(range(now, since))
    # A plugin marks one replica of a device after an XID. Anything else may also be a plugin that was
    # configured with fewer replicas and restarted between two polls.
    least = 1 if len(devices) > 1 else 2
    ambiguous = len(lost) >= least and all(lost == numbers.withdrawn for numbers in devices)
    # Only the highest replica is missing since the plugin's restart.
    ambiguous |= max(_top(numbers.earlier) for numbers in devices) == since + 1
    return None if ambiguous else since


def _top(numbers: set[int]) -> int:
    return max(numbers, default=-1) + 1


def is_named(resource: str, patterns: Iterable[re.Pattern[str]] = ()) -> bool:
    """Return True if a resource has an NVIDIA name: one of the plugin's, or one of the extra ``patterns``."""
    return first_match((RESOURCES, *patterns), resource) is not None


class Nvidia(System):
    """NVIDIA's plugin and GKE's. A resource with any other name counts if its ids are UUIDs of devices.

    Plugins can rename their resources; the patterns in the settings match those names.
    """

    name = "nvidia"
    vendor = "nvidia"
    notes = LABELS
    read: ClassVar[Read | None] = staticmethod(read_daemons)

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._strategies = Strategies(view)
        self._slices: dict[str, Mapping[DeviceKey, DeviceSlices]] = {}

    def meaning(self, resource: str, device_id: str) -> Meaning | None:
        """Return the device of an id in any form of these plugins."""
        named = is_named(resource, self.view.facts.patterns)
        parsed = parse_device_id(device_id)
        device = self.view.inventory.find(parsed) if parsed is not None and (named or parsed.uuid) else None
        if device is not None and parsed is not None:
            return Meaning(device, bool(parsed.replica))
        return Meaning() if named else None

    def sharing(self, device: Device, offer: Offer) -> DeviceSharing:
        """Return the mode: time-slicing, MPS, MIG, exclusive or none."""
        offer = offer._replace(slices=tuple(self._counted(device, count) for count in offer.slices))
        mode, isolation = self._mode(device, offer)
        exclusive = not offer.replicated and mode != "vgpu" and isolation == "hard"
        return DeviceSharing(sharing=mode, isolation=isolation, exclusive=exclusive, slices=offer.slices)

    def entitlement(self, device: Device, sharing: DeviceSharing, held: HeldSlices) -> Entitled:
        """Return what a container is entitled to: the device, or its replicas' share of it.

        MPS enforces the share; with time-slicing it is notional, because a replica guarantees nothing.
        """
        replicas = 1 if sharing.exclusive else self._replicas(sharing, held.resource)
        if not replicas or replicas < held.slices:
            return Entitled()
        memory = self._memory(device, sharing, held, replicas)
        return Entitled(memory, _compute(device, held.slices, replicas))

    def _counted(self, device: Device, count: SliceCount) -> SliceCount:
        """Return the slices that the plugin made of a device, healthy or not."""
        if count.offered is None:
            return count
        slices = self._slices_of(count.resource).get(device.key, UNKNOWN)
        return count._replace(offered=slices.slices, unhealthy=slices.unhealthy, lost=slices.lost)

    def _slices_of(self, resource: str) -> Mapping[DeviceKey, DeviceSlices]:
        if resource not in self._slices:
            by_id = slices_by_device(resource, self.view.allocations, self.view.facts.node)
            devices = ((self.view.inventory.find(name), slices) for name, slices in by_id.items())
            self._slices[resource] = {device.key: slices for device, slices in devices if device is not None}
        return self._slices[resource]

    def _mode(self, device: Device, offer: Offer) -> tuple[str, str]:
        strategies = {self._strategies.of(device, count.resource) for count in offer.slices}
        strategy: Strategy = min(strategies - {""}, default="") if offer.replicated else ""
        if device.mig is not None and strategy != "mps":
            return ("mig-time-slicing", "none") if offer.replicated else ("mig", "hard")
        if offer.slices:
            return MODES[strategy] if offer.replicated else ("exclusive", "hard")
        if device.gpu.virtualization == "vgpu_host":
            return "vgpu", "hard"
        # A GPU with an unknown MIG mode may have MIG devices with holders.
        known = offer.known and device.gpu.up and device.gpu.mig_enabled is not None
        return ("none", "none") if known else ("unknown", "")

    def _replicas(self, sharing: DeviceSharing, resource: str) -> int | None:
        if self.view.allocations.offered is None:
            return self._strategies.replicas(resource)
        return next((count.offered for count in sharing.slices if count.resource == resource), None)

    def _memory(self, device: Device, sharing: DeviceSharing, held: HeldSlices, replicas: int) -> int | None:
        total = device.memory
        if total is None:
            return None
        if sharing.sharing != "mps":
            return total * held.slices // replicas
        # MPS limits are whole MiB. NVIDIA's daemon has one limit for all clients, GKE's plugin one for each
        # container. On a MIG device GKE's is computed from the whole GPU and may exceed the container's part.
        if self._strategies.is_gke(held.resource):
            return total * held.slices // replicas // MEBIBYTE * MEBIBYTE
        return total // replicas // MEBIBYTE * MEBIBYTE * held.slices


def _compute(device: Device, slices: int, replicas: int) -> float | None:
    """Return the share of the physical GPU's compute of some of a device's replicas."""
    if device.mig is None:
        return slices / replicas
    if device.mig.compute_slices is None or not device.gpu.mig_slices:
        return None
    return device.mig.compute_slices * slices / (device.gpu.mig_slices * replicas)
