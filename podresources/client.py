"""The client of the pod-resources API: device ids by container.

Between reads it keeps data, and a connection that works: the first read after an outage works.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from exporter.model import Allocations
from podresources import fold
from podresources.channel import Connection, KubeletError, probe
from podresources.dialer import Dialer, stat_of
from podresources.messages import ALLOCATABLE_V1, LIST_V1, LIST_V1ALPHA1
from podresources.offers import Offer, Offers

# Seconds to wait for a kubelet that exceeded its last deadline; every tenth read waits for the full timeout.
SHORT_TIMEOUT: Final = 1.0
FULL_TIMEOUT_EVERY: Final = 10
_Inode = tuple[int, int, int]


class PodResources:
    """Reads the kubelet's device accounting from ``socket``, in at most ``timeout`` seconds.

    Each start of the kubelet creates a new socket file, which shows the restart. A starting kubelet lists its
    pods one by one: ``exporter.poll.kubelet_restart`` decides if a list is complete. Resources with a plugin
    that has not registered again stay allocatable for ``register_grace`` seconds.
    """

    def __init__(
        self,
        socket: Path,
        *,
        timeout: float = 10.0,
        register_grace: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._socket = socket
        self._dialer = Dialer(socket)
        self._timeout = timeout
        self._register_grace = register_grace
        self._clock = clock
        self._wall = wall
        self._lists = fold.Lists()
        self._offers = Offers(clock)
        self._unanswered = 0
        self.unreachable = False
        """Whether the last read failed because no process can be reached by the socket's file."""
        self._inode: _Inode | None = None
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
        """Close the connection."""
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
            offered=None if offer is None else offer.devices,
            withdrawn=() if offer is None else offer.withdrawn,
            kept=frozenset() if offer is None else offer.kept,
            earlier=() if offer is None else offer.earlier,
            api_version=version,
            read_at=read_at,
            listed=listed.containers,
            kubelet_start=start,
        )

    async def _list(self, kubelet: Connection) -> tuple[str, fold.Listed]:
        # v1 is tried each time, so that an upgraded kubelet is noticed at once.
        try:
            return "v1", await kubelet.call(LIST_V1, self._lists.listed)
        except KubeletError as error:
            if error.reason != "unimplemented":
                raise
        return "v1alpha1", await kubelet.call(LIST_V1ALPHA1, self._lists.listed)

    async def _offered(self, kubelet: Connection, version: str, in_use: set[str]) -> Offer | None:
        if version != "v1":
            self._offers.forget()
            return None
        try:
            fresh = await kubelet.call(ALLOCATABLE_V1, fold.offered)
        except KubeletError as error:
            return self._offers.failed(error)
        settling = self._clock() < self._registered_at
        return self._offers.answered(fresh, in_use=in_use, settling=settling)

    def _kubelet_start(self) -> int:
        """Return the number of kubelet starts seen so far: each creates a new socket file."""
        inode = _inode(self._socket)
        if inode is not None and inode != self._inode:
            self._start += 1
            self._registered_at = self._clock() + self._register_grace
            self._inode = inode
        return self._start


def _inode(socket: Path) -> _Inode | None:
    """Return what identifies a socket file, with its creation time, because inode numbers are reused."""
    status = stat_of(socket)
    return None if status is None else (status.st_dev, status.st_ino, status.st_mtime_ns)
