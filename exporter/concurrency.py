"""Threads for calls that block or may never return: pools, and workers that can be abandoned.

A place is what is left out while a call about it hangs: a GPU, a MIG slot, an AMD card, or a part that all
GPUs share, such as the event set. The event loop notices (``ReplaceableWorker.run``); when the call returns,
``Watched.end`` frees the place, and the next poll reads it.
"""

import asyncio
import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_POOL = ThreadPoolExecutor(min(32, (os.cpu_count() or 1) + 4), thread_name_prefix="render")
# A metrics page has two formats, and a scrape waits for one of them.
_SCRAPED = ThreadPoolExecutor(2, thread_name_prefix="scrape")
# Checks for a hanging call within the time that one call may take.
CHECKS = 5
# Error name under which reads of an excluded place are counted.
HANGS: Final = "Hangs"


async def in_thread(make: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Return the result of ``make`` from a thread of the pool; raises its errors."""
    return await asyncio.get_running_loop().run_in_executor(_POOL, partial(make, *arguments, **named))


async def in_scrape_thread(make: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Return the result of ``make`` from a thread of the pool for scrapes; raises its errors."""
    return await asyncio.get_running_loop().run_in_executor(_SCRAPED, partial(make, *arguments, **named))


async def wait_for(event: asyncio.Event, seconds: float, other: "asyncio.Future[Any] | None" = None) -> bool:
    """Wait up to ``seconds`` for an event, or until ``other`` is done; return whether the event is set.

    ``asyncio.wait_for`` of Python 3.11 loses a cancellation that comes while the event is being set: its
    caller would never end, and neither would the program at its shutdown.
    """
    waiting = asyncio.ensure_future(event.wait())
    try:
        awaited = {waiting} if other is None else {waiting, other}
        await asyncio.wait(awaited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    return event.is_set()


class NoThreadError(RuntimeError):
    """The system refuses to start another thread, as at a pod's limit of processes."""


class Worker:
    """Runs one job at a time, in order; ``name`` is the thread's name."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def run(self, job: Callable[[], T]) -> T:
        """Run a job in the thread and return its result; raises its errors, or NoThreadError.

        When cancelled, a running job continues, but its result is dropped.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                outcome: T | BaseException = job()
            except BaseException as error:  # noqa: BLE001 - it is raised in the caller
                outcome = error
            # The loop is closed if the program ended while the job hung.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_settle, future, outcome)

        if self._thread is None:
            self._thread = self._start()
        self._jobs.put(work)
        return await future

    def stop(self) -> None:
        """End the thread after its queued jobs; does not wait for it."""
        self._jobs.put(None)

    def _start(self) -> threading.Thread:
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


class ReplaceableWorker:
    """Runs jobs one after the other in a thread called ``name``, which it replaces if a call hangs.

    ``abandon_if_hung`` receives ``call_timeout``, the seconds that one call may take, and returns whether
    the thread is abandoned. It must first exclude the part of the node that hangs until that call returns;
    the job is then restarted in a new thread. The abandoned thread cannot be ended, but does not keep the
    program from exiting.
    """

    def __init__(self, name: str, call_timeout: float, abandon_if_hung: Callable[[float], bool]) -> None:
        self._name = name
        self._call_timeout = call_timeout
        self._abandon_if_hung = abandon_if_hung
        self._worker = Worker(name)

    async def run(self, job: Callable[[], T]) -> T:
        """Run a job and return its result; restart it each time its thread is abandoned."""
        running = self._start(job)
        try:
            while not running.done():
                await asyncio.wait({running}, timeout=self._call_timeout / CHECKS)
                if not running.done() and self._abandon_if_hung(self._call_timeout):
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


class AbandonedError(BaseException):
    """Ends an abandoned thread when its call returns.

    Its state is outdated. A BaseException, so that no handler counts it as a failure of the device.
    """


class Watched:
    """The current call of one thread; ``abandon_if_hung`` is for another thread, the rest for this one.

    ``hanging``, which all threads share, has the excluded places, and by place the name of the call that has
    not returned. Times are those of the monotonic clock.
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

    def abandon_if_hung(self, call_timeout: float) -> bool:
        """Return whether the thread is abandoned: its call has taken longer than ``call_timeout`` seconds.

        The place of the call is then excluded until the call returns.
        """
        number = self._number
        place, name, began = self._pending.get(number, ("", "", 0.0))
        if not place or time.monotonic() - began < call_timeout:
            return False
        self._abandoned_at = place
        if self._pending.pop(number, None) is None:
            return False
        self._hanging[place] = name
        # It may have returned just now, before there was an entry to remove.
        if self._returned:
            self._hanging.pop(place, None)
        return True
