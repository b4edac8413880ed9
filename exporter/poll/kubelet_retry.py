"""The time between polls, in which a kubelet that does not answer is asked again.

A machine may have no kubelet at all, and a connection costs far more than a stat of the socket's file. A
kubelet creates a new file at each start. So an unreachable kubelet is asked only for a while after its file
has changed.
"""

import asyncio
import time
from collections.abc import Callable

from exporter.concurrency import wait_for
from exporter.model import Allocations
from exporter.poll.collector import Collector
from exporter.poll.file_readers import ABSENT, FileVersion, SocketFileReader

# A kubelet that may answer is asked again at this pace, whatever the polling interval.
RETRY_SECONDS = 0.5
# A server may create its socket before it listens.
SETTLE_SECONDS = 30.0


class KubeletRetry:
    """Waits between polls, and asks for ``allocations`` again meanwhile.

    ``unreachable`` returns whether the last read failed because no process can be reached by the file of
    ``socket``.
    """

    def __init__(
        self,
        allocations: Collector[Allocations],
        socket: SocketFileReader,
        unreachable: Callable[[], bool],
    ) -> None:
        self._allocations = allocations
        self._socket = socket
        self._unreachable = unreachable
        self._watch: asyncio.Task[FileVersion] | None = None
        self._seen: FileVersion | None = None
        self._ask_until = 0.0

    async def wait(self, wake: asyncio.Event, due: float) -> bool:
        """Sleep until ``due`` (monotonic); return True if a poll is needed earlier.

        The reasons: the kubelet answers again, or ``wake`` is set, because a GPU was repartitioned, or the
        driver is to be released or opened again.
        """
        while (remaining := due - time.monotonic()) > 0:
            if await self._sleep(wake, remaining):
                wake.clear()
                return True
            remaining = due - time.monotonic()
            if self._answers() or remaining <= RETRY_SECONDS or not self._may_answer():
                continue
            await self._allocations.collect(remaining - RETRY_SECONDS)
            if self._answers():
                return True
        return False

    def close(self) -> None:
        """Stop watching the file."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _answers(self) -> bool:
        return self._allocations.health.success

    def _may_answer(self) -> bool:
        """Return False while only a change of the socket's file can help."""
        return not self._unreachable() or (self._seen != ABSENT and time.monotonic() < self._ask_until)

    async def _sleep(self, wake: asyncio.Event, seconds: float) -> bool:
        """Sleep until the kubelet is to be asked, at most ``seconds``; return whether ``wake`` is set."""
        if self._answers():
            # The file may be another one when the kubelet fails again.
            self._seen = None
            self.close()
            return await wait_for(wake, seconds)
        if not self._unreachable():
            return await wait_for(wake, min(seconds, RETRY_SECONDS))
        if self._watch is None:
            self._watch = asyncio.ensure_future(self._socket.changed(self._seen))
        if self._may_answer():
            woken = await wait_for(wake, min(seconds, RETRY_SECONDS))
        else:
            woken = await wait_for(wake, seconds, self._watch)
        self._note_change()
        return woken

    def _note_change(self) -> None:
        """Ask for a while if the file has changed, also if no thread is left to look at it."""
        if self._watch is not None and self._watch.done():
            self._seen = None if self._watch.exception() else self._watch.result()
            self._watch = None
            self._ask_until = time.monotonic() + SETTLE_SECONDS
