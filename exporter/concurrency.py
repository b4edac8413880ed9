"""Threads for calls that block: daemon workers that can be abandoned, pools, and waiting with a timeout."""

import asyncio
import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_POOL = ThreadPoolExecutor(min(32, (os.cpu_count() or 1) + 4), thread_name_prefix="render")
# A page of metrics has two formats, and a scrape waits for one of them.
_SCRAPED = ThreadPoolExecutor(2, thread_name_prefix="scrape")


async def in_thread(make: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Make something in one of the threads; raises what ``make`` does."""
    return await asyncio.get_running_loop().run_in_executor(_POOL, partial(make, *arguments, **named))


async def in_scrape_thread(make: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Make something that is scraped, as ``in_thread`` makes all else."""
    return await asyncio.get_running_loop().run_in_executor(_SCRAPED, partial(make, *arguments, **named))


async def wait_for(event: asyncio.Event, seconds: float) -> bool:
    """Wait so long for an event; return whether it is set.

    ``asyncio.wait_for`` of Python 3.11 loses a cancellation that comes while the event is being set: who
    waits by it goes on for ever, and with it the program that was told to end.
    """
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({waiting}, timeout=seconds)
    finally:
        waiting.cancel()
    return event.is_set()


class NoThreadError(RuntimeError):
    """The system lets this process start no thread now, as where a pod has as many as it may have."""


class Worker:
    """Runs one job at a time, in the order they came; ``name`` is the thread's name."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def run(self, job: Callable[[], T]) -> T:
        """Run a job in the thread. When cancelled, one that has begun goes on, but nobody waits for it.

        Raises what the job does, or NoThreadError.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                outcome: T | BaseException = job()
            except BaseException as error:  # noqa: BLE001 - it is handed to the one who waits
                outcome = error
            # The loop is closed when the program ended while the job hung.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_settle, future, outcome)

        if self._thread is None:
            self._thread = self._started()
        self._jobs.put(work)
        return await future

    def stop(self) -> None:
        """Let the thread end after the jobs that it has; does not wait for it."""
        self._jobs.put(None)

    def _started(self) -> threading.Thread:
        thread = threading.Thread(target=self._loop, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            raise NoThreadError(str(error)) from error
        return thread

    def _loop(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


def _settle(future: "asyncio.Future[T]", outcome: T | BaseException) -> None:
    if future.done():
        return
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


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
