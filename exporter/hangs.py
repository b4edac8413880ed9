"""Calls that may never return: a worker that is abandoned with its call, and what that call is about."""

import asyncio
import time
from collections.abc import Callable
from typing import Final, TypeVar

from exporter.concurrency import Worker

T = TypeVar("T")
# So often it is looked whether a job hangs, within the time that one call may take.
LOOKS = 5
# A call about one device that takes longer hangs, where nothing else is said.
PATIENCE_SECONDS = 2.5


class ReplaceableWorker:
    """Runs jobs one after the other, in a thread called ``name``.

    ``leave`` is asked whether the thread waits for a single thing for longer than ``patience`` seconds. Where
    it says so, it has seen to it that this thing is left out until it answers: then the job is begun anew in
    another thread. The first cannot be ended, but does not keep the program from ending.
    """

    def __init__(self, name: str, patience: float, leave: Callable[[float], bool]) -> None:
        self._name = name
        self._patience = patience
        self._leave = leave
        self._worker = Worker(name)

    async def run(self, job: Callable[[], T]) -> T:
        """Run a job, however often it takes to begin it."""
        running = self._begin(job)
        try:
            while not running.done():
                await asyncio.wait({running}, timeout=self._patience / LOOKS)
                if not running.done() and self._leave(self._patience):
                    running.cancel()
                    self._worker.stop()
                    self._worker = Worker(self._name)
                    running = self._begin(job)
            return running.result()
        finally:
            running.cancel()

    async def finish(self, job: Callable[[], object]) -> None:
        """Run the last job, after the one that is still under way."""
        await self._worker.run(job)
        self._worker.stop()

    def _begin(self, job: Callable[[], T]) -> "asyncio.Future[T]":
        return asyncio.ensure_future(self._worker.run(job))


# By this name it is counted that something is left out.
HANGS: Final = "Hangs"


class LeftBehindError(BaseException):
    """Ends a thread whose call has returned after another thread has gone on in its place.

    What this one knows is old, and no reader may take it for a failure of the device.
    """


class Hangs:
    """What is left out: ``calls`` has the name of the call that does not return by what it asks about."""

    def __init__(self) -> None:
        self.calls: dict[str, str] = {}

    def watch(self) -> "Watched":
        """Watch the calls of one more thread."""
        return Watched(self.calls)


class Watched:
    """The call that one thread is in; ``leave`` is for another thread, all else for this one.

    Times are those of the monotonic clock.
    """

    def __init__(self, hanging: dict[str, str]) -> None:
        self._hanging = hanging
        self._number = 0
        # The call by its number. Whichever thread takes it out, in one step, decides if it has returned.
        self._pending: dict[int, tuple[str, str, float]] = {}
        self._left = ""
        self._returned = False

    def begin(self, place: str, name: str, now: float) -> None:
        """Note a call about ``place``; "" is the driver as a whole, which nobody can go on without."""
        self._number += 1
        self._pending[self._number] = place, name, now

    def end(self) -> None:
        """Note that the call has returned; raises LeftBehindError if nobody waits for it any more."""
        if self._pending.pop(self._number, None) is None:
            self._returned = True
            self._hanging.pop(self._left, None)
            raise LeftBehindError

    def leave(self, patience: float) -> bool:
        """Leave the thread behind if its call takes longer than ``patience`` seconds; tell whether it is.

        Until that call returns, what it asks about is left out.
        """
        number = self._number
        place, name, began = self._pending.get(number, ("", "", 0.0))
        if not place or time.monotonic() - began < patience:
            return False
        self._left = place
        if self._pending.pop(number, None) is None:
            return False
        self._hanging[place] = name
        # It may have returned just now, when there was nothing yet to take back.
        if self._returned:
            self._hanging.pop(place, None)
        return True
