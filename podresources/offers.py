"""Allocatable devices, kept over gaps in the kubelet's responses.

While a device plugin registers again after a restart, the kubelet's response lacks its resource, although
nothing has changed on the node.
"""

import logging
from collections.abc import Callable, Collection
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from exporter.model import OfferedDevice
from podresources.channel import KubeletError

KEPT: Final = 300.0  # seconds for which the last good response replaces one that fails
_PERMANENT: Final = frozenset({"unimplemented", "internal"})
_log = logging.getLogger(__name__)


class Offer(NamedTuple):
    """Allocatable devices."""

    devices: tuple[OfferedDevice, ...]
    # Allocatable at some time since their plugin started, but not now.
    withdrawn: tuple[OfferedDevice, ...] = ()
    # Resources without a device in the last response; theirs are from an earlier one.
    kept: frozenset[str] = frozenset()
    # Allocatable before their plugin restarted, but not since: unhealthy, or no longer made.
    earlier: tuple[OfferedDevice, ...] = ()


class Offers:
    """Keeps the last good response by resource."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last: dict[str, tuple[OfferedDevice, ...]] | None = None
        self._kept: frozenset[str] = frozenset()
        self._seen: dict[str, frozenset[OfferedDevice]] = {}
        self._earlier: dict[str, frozenset[OfferedDevice]] = {}
        self._read_at = 0.0
        self._failure = ""

    def answered(self, fresh: tuple[OfferedDevice, ...], *, in_use: Collection[str], settling: bool) -> Offer:
        """Store a sorted response and return the allocatable devices.

        A resource missing from it is kept while the kubelet is ``settling`` after a restart, and while it is
        ``in_use``: held devices must have been allocatable. It is dropped if a new resource has appeared: the
        plugin may have been reconfigured to rename its resource.
        """
        now = {name: tuple(group) for name, group in groupby(fresh, attrgetter("resource"))}
        self._note(now)
        previous = self._last or {}
        renamed = bool(previous) and not now.keys() <= previous.keys()
        missing = {name: devices for name, devices in previous.items() if name not in now}
        kept = {name: devices for name, devices in missing.items() if settling or name in in_use}
        self._kept = frozenset() if renamed else frozenset(kept)
        self._last = now | ({} if renamed else kept)
        self._seen = {resource: self._seen[resource] for resource in self._last}
        self._earlier = {resource: self._earlier[resource] for resource in self._last}
        self._read_at, self._failure = self._clock(), ""
        return self._shown(self._last)

    def _note(self, now: dict[str, tuple[OfferedDevice, ...]]) -> None:
        """Record the devices that each resource had since its plugin started.

        A plugin lists its devices when it starts, and later reports their health: a device that was never
        listed, or a resource that is back, shows a new start.
        """
        for resource, devices in now.items():
            fresh = frozenset(devices)
            known = self._seen.get(resource, frozenset()) | self._earlier.get(resource, frozenset())
            if resource in self._kept or not fresh <= self._seen.get(resource, frozenset()):
                self._seen[resource] = fresh
                self._earlier[resource] = known - fresh if fresh <= known else frozenset()

    def failed(self, error: KubeletError) -> Offer | None:
        """Return the devices that replace a failed response, None if there are none."""
        if error.reason != self._failure:
            _log.warning("could not refresh allocatable devices: %s", error)
        self._failure = error.reason
        if error.reason in _PERMANENT or self._clock() - self._read_at > KEPT:
            self.forget()
        return None if self._last is None else self._shown(self._last)

    def forget(self) -> None:
        """Drop the last good response: the kubelet no longer reports allocatable devices."""
        self._last = None
        self._kept = frozenset()
        self._seen = {}
        self._earlier = {}

    def _shown(self, offers: dict[str, tuple[OfferedDevice, ...]]) -> Offer:
        withdrawn = (device for name, seen in self._seen.items() for device in seen.difference(offers[name]))
        return Offer(
            devices=tuple(device for resource in sorted(offers) for device in offers[resource]),
            withdrawn=tuple(sorted(withdrawn)),
            kept=self._kept,
            earlier=tuple(sorted(device for devices in self._earlier.values() for device in devices)),
        )
