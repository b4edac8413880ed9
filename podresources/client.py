"""The client of the pod-resources API: device ids by container.

Between reads it keeps data, and a connection that works: the first read after an outage works. It keeps
allocatable devices over gaps: while a device plugin registers again after a restart, the kubelet's response
lacks its resource, although nothing has changed on the node.
"""

import logging
import time
from collections.abc import Callable, Collection
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

from exporter.model import Allocations, OfferedDevice
from podresources.channel import Dialer, FileVersion, KubeletConnection, KubeletError, probe, version_of
from podresources.messages import ALLOCATABLE_V1, LIST_V1, LIST_V1ALPHA1, Listed, Lists, offered

KEEP_SECONDS: Final = 300.0  # seconds for which the last good response replaces one that fails
REGISTER_SECONDS: Final = 60.0
_PERMANENT: Final = frozenset({"unimplemented", "internal"})
_log = logging.getLogger(__name__)
# Seconds to wait for a kubelet that exceeded its last deadline; every tenth read waits for the full timeout.
SHORT_TIMEOUT: Final = 1.0
FULL_TIMEOUT_EVERY: Final = 10


class Allocatable(NamedTuple):
    """Allocatable devices, None if they are unknown."""

    devices: tuple[OfferedDevice, ...] | None = None
    # Allocatable at some time since their plugin started, but not now.
    withdrawn: tuple[OfferedDevice, ...] = ()
    # Resources without a device in the last response; theirs are from an earlier one.
    kept: frozenset[str] = frozenset()
    # Allocatable before their plugin restarted, but not since: unhealthy, or no longer made.
    earlier: tuple[OfferedDevice, ...] = ()


class KeptDevices:
    """Keeps the last good response by resource."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last: dict[str, tuple[OfferedDevice, ...]] | None = None
        self._kept: frozenset[str] = frozenset()
        self._seen: dict[str, frozenset[OfferedDevice]] = {}
        self._earlier: dict[str, frozenset[OfferedDevice]] = {}
        self._read_at = 0.0
        self._failure = ""

    def answered(
        self, fresh: tuple[OfferedDevice, ...], *, in_use: Collection[str], settling: bool
    ) -> Allocatable:
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

    def failed(self, error: KubeletError) -> Allocatable:
        """Return the devices that replace a failed response."""
        if error.reason != self._failure:
            _log.warning("could not refresh allocatable devices: %s", error)
        self._failure = error.reason
        if error.reason in _PERMANENT or self._clock() - self._read_at > KEEP_SECONDS:
            self.forget()
        return Allocatable() if self._last is None else self._shown(self._last)

    def forget(self) -> None:
        """Drop the last good response: the kubelet no longer reports allocatable devices."""
        self._last = None
        self._kept = frozenset()
        self._seen = {}
        self._earlier = {}

    def _shown(self, offers: dict[str, tuple[OfferedDevice, ...]]) -> Allocatable:
        withdrawn = (device for name, seen in self._seen.items() for device in seen.difference(offers[name]))
        return Allocatable(
            devices=tuple(device for resource in sorted(offers) for device in offers[resource]),
            withdrawn=tuple(sorted(withdrawn)),
            kept=self._kept,
            earlier=tuple(sorted(device for devices in self._earlier.values() for device in devices)),
        )


class PodResourcesApi:
    """Reads the kubelet's device accounting from ``socket``, in at most ``timeout`` seconds.

    Each start of the kubelet creates a new socket file, which shows the restart. A starting kubelet lists its
    pods one by one, so that its list may be incomplete. Resources with a plugin that has not registered again
    stay allocatable for REGISTER_SECONDS.
    """

    def __init__(
        self,
        socket: Path,
        *,
        timeout: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._socket = socket
        self._dialer = Dialer(socket)
        self._timeout = timeout
        self._clock = clock
        self._wall = wall
        self._lists = Lists()
        self._offers = KeptDevices(clock)
        self._unanswered = 0
        # Whether the last read failed because no process can be reached by the socket's file.
        self.unreachable = False
        self._inode: FileVersion | None = None
        self._start = 0
        self._registered_at = 0.0

    async def read(self) -> Allocations:
        """Return the allocations and allocatable devices; KubeletError if the allocations cannot be read.

        If only the allocatable devices cannot be read, ``offered`` is None or from an earlier response.
        """
        # A short timeout notices at once when a kubelet that hung is back; the full one is for a slow
        # kubelet.
        hung = self._unanswered % FULL_TIMEOUT_EVERY != 0
        within = min(self._timeout, SHORT_TIMEOUT) if hung else self._timeout
        self._unanswered += 1
        # While a read runs, this is unknown.
        unreachable, self.unreachable = self.unreachable, False
        try:
            if unreachable:
                # After each channel, grpc's threads stay busy for a while.
                probe(self._socket)
            allocations = await self._read(within)
        except KubeletError as error:
            if error.reason != "deadline":
                self._unanswered = 0
            self.unreachable = error.unreachable
            raise
        self._unanswered = 0
        return allocations

    async def close(self) -> None:
        await self._dialer.close()

    async def _read(self, within: float) -> Allocations:
        start = self._kubelet_start()
        async with self._dialer.connect(within=within) as kubelet:
            version, listed = await self._list(kubelet)
            read_at = self._wall()
            in_use = {allocation.resource for allocation in listed.allocated}
            offer = await self._offered(kubelet, version, in_use)
        if self._kubelet_start() != start:
            raise KubeletError("unavailable", self._socket, "the kubelet was restarted during this read")
        return Allocations(
            allocated=listed.allocated,
            claims=listed.claims,
            offered=offer.devices,
            withdrawn=offer.withdrawn,
            kept=offer.kept,
            earlier=offer.earlier,
            api_version=version,
            read_at=read_at,
            listed=listed.containers,
            kubelet_start=start,
        )

    async def _list(self, kubelet: KubeletConnection) -> tuple[str, Listed]:
        # v1 is tried each time, so that an upgraded kubelet is noticed at once.
        try:
            return "v1", await kubelet.call(LIST_V1, self._lists.listed)
        except KubeletError as error:
            if error.reason != "unimplemented":
                raise
        return "v1alpha1", await kubelet.call(LIST_V1ALPHA1, self._lists.listed)

    async def _offered(self, kubelet: KubeletConnection, version: str, in_use: set[str]) -> Allocatable:
        if version != "v1":
            self._offers.forget()
            return Allocatable()
        try:
            fresh = await kubelet.call(ALLOCATABLE_V1, offered)
        except KubeletError as error:
            return self._offers.failed(error)
        settling = self._clock() < self._registered_at
        return self._offers.answered(fresh, in_use=in_use, settling=settling)

    def _kubelet_start(self) -> int:
        """Return the number of kubelet starts seen so far: each creates a new socket file."""
        inode = version_of(self._socket, "st_mtime_ns")
        if inode is not None and inode != self._inode:
            self._start += 1
            self._registered_at = self._clock() + REGISTER_SECONDS
            self._inode = inode
        return self._start
