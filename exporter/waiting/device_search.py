"""The search for devices that serve requests of claims, as exhaustive as that of the scheduler.

Devices may share counters: the MIG devices of a GPU, of which all possible ones are offered, share its memory
slices. Without counters requests and devices are matched; with them, choices are tried one by one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from exporter.waiting.cel import SelectorError, matches
from exporter.waiting.cel_syntax import NotSimpleError
from exporter.waiting.filters import KEEPS_OUT, Finding, Reason, tolerates
from exporter.waiting.objects import ClaimRequest, DeviceClass, DeviceName, OfferedDraDevice

MOST_DEVICES: Final = 32
"""Devices that one claim can have. The scheduler reports an error for more."""
_MOST_SEARCHED: Final = 256
_MOST_TRIES: Final = 20_000
Left: TypeAlias = Mapping[tuple[str, str], dict[str, int]]
"""What is left of the counters of pools, by driver and name of the pool."""


class Pool(NamedTuple):
    """The devices of a pool that a node can use."""

    name: tuple[str, str]  # its driver and name
    devices: tuple[OfferedDraDevice, ...]
    complete: bool  # an incomplete pool is being updated
    usable: bool  # no device of a pool that is incomplete, or not valid, is used
    counters: Mapping[str, int]  # what is left of those that its devices share


@dataclass(slots=True)
class Doubts:
    """What could not be judged, and whether the scheduler may meet an error."""

    words: dict[str, None] = field(default_factory=dict)
    may_abort: bool = False

    def add(self, *words: str, abort: bool = False) -> None:
        self.words.update(dict.fromkeys(words))
        self.may_abort = self.may_abort or abort

    def finding(self, *reasons: Reason) -> Finding | None:
        """Return them with the reasons for "no", None if there is neither."""
        if not reasons and not self.words:
            return None
        return Finding(reasons, tuple(self.words), self.may_abort)


@dataclass(slots=True)
class Search:
    """The search for devices of one node for all claims of a pod."""

    in_use: frozenset[DeviceName]
    classes: Mapping[str, DeviceClass]
    pools: tuple[Pool, ...]
    doubts: Doubts
    # Of requests for all devices.
    taken: dict[DeviceName, OfferedDraDevice] = field(default_factory=dict)
    # Whether such a request cannot be served.
    in_vain: bool = False
    # Requests for a number of devices.
    wanted: list[ClaimRequest] = field(default_factory=list)

    def take_up(self, requests: Sequence[ClaimRequest]) -> None:
        """Take up the requests of a claim.

        All are looked at, even if one is in vain: the scheduler may meet an error at each of them.
        """
        size = 0
        for request in requests:
            self.doubts.add(*request.unread)
            if request.unread:
                continue
            if request.count is not None:
                self.wanted.append(request)
                size += request.count
                continue
            chosen = self._all(request)
            if chosen is not None:
                used = chosen.keys() & (self.in_use | self.taken.keys())
                barred = any(_barred(request, device) for device in chosen.values())
                self.in_vain = self.in_vain or not chosen or bool(used) or barred
                self.taken |= chosen
                size += len(chosen)
        if size > MOST_DEVICES:
            self.doubts.add(f"a claim of more than {MOST_DEVICES} devices", abort=True)

    def _all(self, request: ClaimRequest) -> dict[DeviceName, OfferedDraDevice] | None:
        """Return all devices that meet a request, None if that is in doubt."""
        if not all(pool.usable for pool in self.pools):
            self.doubts.add("a pool of devices that cannot be used", abort=True)
            return None
        doubts = Doubts()
        devices = (device for pool in self.pools for device in pool.devices)
        chosen = {device.name: device for device in devices if self._meets(request, device, doubts)}
        self.doubts.add(*doubts.words, abort=doubts.may_abort)
        return None if doubts.words else chosen

    def matched(self) -> bool:
        """Return whether the requests that were taken up can be served."""
        pools = [pool for pool in self.pools if pool.usable]
        devices = [device for pool in pools for device in pool.devices]
        self.wanted = [each for each in self.wanted if not self._may_share(each, devices)]
        idle = [device for device in devices if device.name not in self.in_use]
        # Also of devices that requests for all take: the scheduler may look at them before.
        suited = [
            {device.name for device in idle if self._meets(request, device, self.doubts)}
            for request in self.wanted
        ]
        free = [device for device in idle if device.name not in self.taken]
        left = {pool.name: dict(pool.counters) for pool in pools}
        size = sum(request.count or 0 for request in self.wanted)
        if self.in_vain or size > len(free) or not all(take(left, each) for each in self.taken.values()):
            return False
        if size > _MOST_SEARCHED:
            self.doubts.add(f"claims of more than {_MOST_SEARCHED} devices")
            return True
        slots: list[list[int]] = []
        for request, names in zip(self.wanted, suited, strict=True):
            places = [
                place
                for place, device in enumerate(free)
                if device.name in names and not _barred(request, device)
            ]
            slots.extend([places] * (request.count or 0))
        if not any(device.counters for device in free) or not assigned(slots):
            return assigned(slots)
        fits = packed(slots, free, left)
        if fits is None:
            self.doubts.add("devices that share counters, which have too many choices")
        return fits is not False

    def _may_share(self, request: ClaimRequest, devices: Sequence[OfferedDraDevice]) -> bool:
        """Return whether devices that others may have too can serve a request, which is not judged."""
        shared = (each for each in devices if each.shared and not _barred(request, each))
        return any(self._meets(request, device, self.doubts) for device in shared)

    def _meets(self, request: ClaimRequest, device: OfferedDraDevice, doubts: Doubts) -> bool:
        """Return whether a device meets a request; a doubtful one does, and is noted."""
        kind = self.classes.get(request.device_class)
        found = Doubts()
        for expression in (*(kind.selectors if kind is not None else ()), *request.selectors):
            try:
                if not matches(expression, device):
                    # An error before this one ends the attempt of the scheduler.
                    doubts.add(*found.words, abort=found.may_abort)
                    return False
            except NotSimpleError:
                found.add("a selector of devices that is not simple", abort=True)
            except SelectorError:
                found.add("a selector that fails for a device", abort=True)
        doubts.add(*found.words, *device.unread, abort=found.may_abort)
        return True


def _barred(request: ClaimRequest, device: OfferedDraDevice) -> bool:
    """Return whether a taint of a device, such as that of a sick one, keeps a request away from it."""
    return any(
        taint.effect in KEEPS_OUT and not tolerates(request.tolerations, taint) for taint in device.taints
    )


def assigned(slots: Sequence[Sequence[int]]) -> bool:
    """Return whether each slot can have a place of its own; each slot lists its possible places.

    A slot whose places are taken moves others, along the path by which all keep one.
    """
    owner: dict[int, int] = {}

    def place(slot: int, tried: set[int]) -> bool:
        for each in slots[slot]:
            if each not in tried:
                tried.add(each)
                if each not in owner or place(owner[each], tried):
                    owner[each] = slot
                    return True
        return False

    return all(place(slot, set()) for slot in range(len(slots)))


def packed(slots: Sequence[Sequence[int]], devices: Sequence[OfferedDraDevice], left: Left) -> bool | None:
    """Return whether each slot can have a device of its own with the counters that are left.

    None: there are too many choices to try them all.
    """
    used: set[int] = set()
    tries = 0

    def choose(slot: int, after: int) -> bool | None:
        nonlocal tries
        if slot == len(slots):
            return True
        # Slots of one request are alike: their places ascend.
        alike = slot > 0 and slots[slot] is slots[slot - 1]
        for place in slots[slot]:
            if place in used or (alike and place < after) or not take(left, devices[place]):
                continue
            used.add(place)
            tries += 1
            answer = None if tries > _MOST_TRIES else choose(slot + 1, place)
            if answer is not False:
                return answer
            used.remove(place)
            give(left, devices[place])
        return False

    return choose(0, -1)


def take(left: Left, device: OfferedDraDevice) -> bool:
    """Take the counters of a device, unless too little is left; then the pool gives none at all."""
    counters = left.get((device.name.driver, device.name.pool), {})
    asked = {name: size for name, size in device.counters.items() if name in counters}
    if device.counters and any(size < asked.get(name, 0) for name, size in counters.items()):
        return False
    for name, size in asked.items():
        counters[name] -= size
    return True


def give(left: Left, device: OfferedDraDevice) -> None:
    """Give the counters of a device back."""
    counters = left.get((device.name.driver, device.name.pool), {})
    for name, size in device.counters.items():
        if name in counters:
            counters[name] += size
