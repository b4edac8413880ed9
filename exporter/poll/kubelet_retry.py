"""The time between polls, in which a kubelet that does not answer is asked again.

A machine may have no kubelet at all, and connecting costs far more than a look at the socket's file. Where
nobody listens on that file, nobody ever will: a kubelet creates a new one at its start. So an unreachable
kubelet is asked only for a while after its file has changed.
"""

import math
import time
from asyncio import Event
from collections.abc import Callable

from exporter.concurrency import wait_for
from exporter.model import Allocations
from exporter.poll.collector import Collector
from exporter.poll.file_readers import FileVersion

# A kubelet that may answer without a new socket is asked again at this pace, whatever the polling interval.
RETRY_SECONDS = 0.5
# The pace of looks at the socket's file, of which each costs about 0.1 ms.
LOOK_SECONDS = 1.0
# A file system that hangs holds up no poll.
LOOK_PATIENCE = 0.25
# A server may create its socket before it listens.
SETTLE_SECONDS = 30.0


class KubeletRetry:
    """Waits between polls, and asks again for ``allocations`` meanwhile.

    ``socket`` reads the version of the socket's file, None without one. ``unreachable`` returns whether the
    last read failed because no process can be reached by that file.
    """

    def __init__(
        self,
        allocations: Collector[Allocations],
        socket: Collector[FileVersion | None],
        unreachable: Callable[[], bool],
    ) -> None:
        self._allocations = allocations
        self._socket = socket
        self._unreachable = unreachable
        self._looked = False
        self._seen: FileVersion | None = None
        self._ask_until = 0.0

    async def wait(self, wake: Event, due: float) -> bool:
        """Sleep until ``due`` (monotonic); return True if a poll is needed earlier.

        The reasons: the kubelet answers again, or ``wake`` is set, because a GPU was repartitioned, or the
        driver is to be released or opened again.
        """
        while (remaining := due - time.monotonic()) > 0:
            if self._answers():
                # The next failure may come with a new file.
                self._looked = False
            if await wait_for(wake, min(remaining, self._pause())):
                wake.clear()
                return True
            remaining = due - time.monotonic()
            if self._answers() or remaining <= RETRY_SECONDS or not await self._is_worth_asking():
                continue
            await self._allocations.collect(remaining - RETRY_SECONDS)
            if self._answers():
                return True
        return False

    def _answers(self) -> bool:
        return self._allocations.health.success

    def _pause(self) -> float:
        if self._answers():
            return math.inf
        quick = not self._looked or not self._unreachable() or self._is_settling()
        return RETRY_SECONDS if quick else LOOK_SECONDS

    async def _is_worth_asking(self) -> bool:
        if not self._unreachable():
            return True
        await self._socket.collect(LOOK_PATIENCE)
        if not self._socket.health.success:
            return False
        if not self._looked or self._socket.value != self._seen:
            self._looked, self._seen = True, self._socket.value
            self._ask_until = time.monotonic() + SETTLE_SECONDS
        return self._is_settling()

    def _is_settling(self) -> bool:
        return self._seen is not None and time.monotonic() < self._ask_until
