"""The number of replicas of each device of NVIDIA's plugin, by the allocatable and held ids.

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
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from exporter.model import Allocations, NodeObject
from exporter.sharing.base.inventory import DeviceId, parse_device_id

NUMBER = re.compile(r"[0-9]{1,9}")
# The number of an id of a whole device.
WHOLE = -1


class Cut(NamedTuple):
    """The slices of a device. The last two are None while the kubelet lists no id of the resource."""

    slices: int | None
    unhealthy: int | None  # not allocatable
    lost: int | None  # neither allocatable nor held


UNKNOWN = Cut(None, None, None)


@dataclass(slots=True)
class Numbers:
    """The numbers of a device's ids of one resource; see podresources.offers.Offer."""

    offered: set[int] = field(default_factory=set)
    held: set[int] = field(default_factory=set)
    withdrawn: set[int] = field(default_factory=set)
    earlier: set[int] = field(default_factory=set)

    @property
    def known(self) -> set[int]:
        """The numbers since the plugin's start."""
        return self.offered | self.held | self.withdrawn


def cuts(resource: str, allocations: Allocations, node: NodeObject | None) -> Mapping[DeviceId, Cut]:
    """Return the slices of each device for a resource, without devices with an unknown number."""
    devices = _numbers(resource, allocations)
    offered = sum(len(numbers.offered) for numbers in devices.values())
    if not offered:
        return {}
    whole = {device: numbers for device, numbers in devices.items() if numbers.known == {WHOLE}}
    cut = {device: numbers for device, numbers in devices.items() if WHOLE not in numbers.known}
    alike = len(devices) in (len(whole), len(cut))
    capacity = _capacity(resource, node, offered) if alike else None
    counted = _of_whole(whole, capacity) | _of_replicas(cut, capacity)
    if resource in allocations.kept:
        return {device: cut._replace(unhealthy=None, lost=None) for device, cut in counted.items()}
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


def _of_whole(devices: Mapping[DeviceId, Numbers], capacity: int | None) -> dict[DeviceId, Cut]:
    """Return the slices of whole devices: not allocatable is unhealthy, unless the capacity excludes it."""
    offered = {device: Cut(1, 0, 0) for device, numbers in devices.items() if numbers.offered}
    if capacity is not None and capacity != len(devices):
        return offered
    missing = {device: Cut(1, 1, 0 if numbers.held else 1) for device, numbers in devices.items()}
    return missing | offered


def _of_replicas(devices: Mapping[DeviceId, Numbers], capacity: int | None) -> dict[DeviceId, Cut]:
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
        device: Cut(slices, slices - len(numbers.offered), slices - len(numbers.offered | numbers.held))
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
