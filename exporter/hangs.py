"""Calls that may never return: threads that can be abandoned, and the places of their calls.

A place is what is left out while a call about it hangs: a GPU, a MIG slot, an AMD card, or a part that all
GPUs share, such as the event set. The event loop notices (``ReplaceableWorker.run``); when the call returns,
``Watched.end`` frees the place, and the next poll reads it.

Used by ``nvml/source.py`` with ``nvml/driver/calls.py``, and by ``amd/amd_source.py`` with
``amd/sysfs_file.py``. Of a GPU that hangs ``model/lost_gpu.py`` keeps who it is; what is shown of it is in
``web/pages/picture/gpu_rows.py`` (its row), ``web/pages/views/notices.py`` and ``doctor/gpus.py``. A call
that is about the whole driver ends with the deadline of ``poll/collector.py``.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, TypeVar

from exporter.concurrency import Worker

T = TypeVar("T")
# Checks for a hanging call within the time that one call may take.
CHECKS = 5


class ReplaceableWorker:
    """Runs jobs one after the other in a thread called ``name``, which it replaces if a call hangs.

    ``abandon`` receives the seconds that one call may take (``patience``) and returns whether the thread is
    abandoned. It must first exclude the place of the hanging call until that call returns; the job is then
    restarted in a new thread. The abandoned thread cannot be ended, but does not keep the program from
    exiting.
    """

    def __init__(self, name: str, patience: float, abandon: Callable[[float], bool]) -> None:
        self._name = name
        self._patience = patience
        self._abandon = abandon
        self._worker = Worker(name)

    async def run(self, job: Callable[[], T]) -> T:
        """Run a job and return its result; restart it each time its thread is abandoned."""
        running = self._start(job)
        try:
            while not running.done():
                await asyncio.wait({running}, timeout=self._patience / CHECKS)
                if not running.done() and self._abandon(self._patience):
                    running.cancel()
                    self._worker.stop()
                    self._worker = Worker(self._name)
                    running = self._start(job)
            return running.result()
        finally:
            running.cancel()

    async def finish(self, job: Callable[[], object]) -> None:
        """Run the last job, after the one that is still running, and stop."""
        await self._worker.run(job)
        self._worker.stop()

    def _start(self, job: Callable[[], T]) -> "asyncio.Future[T]":
        return asyncio.ensure_future(self._worker.run(job))


# Error name under which reads of an excluded place are counted.
HANGS: Final = "Hangs"


class AbandonedError(BaseException):
    """Ends an abandoned thread when its call returns.

    Its state is outdated. A BaseException, so that no handler counts it as a failure of the device.
    """


class Hangs:
    """Calls that have not returned, by place: ``calls`` maps the excluded place to the call's name."""

    def __init__(self) -> None:
        self.calls: dict[str, str] = {}

    def watch(self) -> "Watched":
        """Return the record of the calls of one more thread."""
        return Watched(self.calls)


class Watched:
    """The current call of one thread; ``abandon`` is for another thread, the rest for this one.

    Times are those of the monotonic clock.
    """

    def __init__(self, hanging: dict[str, str]) -> None:
        self._hanging = hanging
        self._number = 0
        # The current call by its number. The thread that removes it, which is atomic, decides if it returned.
        self._pending: dict[int, tuple[str, str, float]] = {}
        self._abandoned_at = ""
        self._returned = False

    def begin(self, place: str, name: str, now: float) -> None:
        """Record the start of a call about ``place``; "" is the driver as a whole, never excluded."""
        self._number += 1
        self._pending[self._number] = place, name, now

    def end(self) -> None:
        """Record that the call has returned; raises AbandonedError if this thread has been abandoned."""
        if self._pending.pop(self._number, None) is None:
            self._returned = True
            self._hanging.pop(self._abandoned_at, None)
            raise AbandonedError

    def abandon(self, patience: float) -> bool:
        """Return whether the thread is abandoned: its call has taken longer than ``patience`` seconds.

        The place of the call is then excluded until the call returns.
        """
        number = self._number
        place, name, began = self._pending.get(number, ("", "", 0.0))
        if not place or time.monotonic() - began < patience:
            return False
        self._abandoned_at = place
        if self._pending.pop(number, None) is None:
            return False
        self._hanging[place] = name
        # It may have returned just now, before there was an entry to remove.
        if self._returned:
            self._hanging.pop(place, None)
        return True
