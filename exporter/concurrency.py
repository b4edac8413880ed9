"""Threads for calls that block: daemon workers that can be abandoned, pools, and waiting with a timeout."""

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_POOL = ThreadPoolExecutor(min(32, (os.cpu_count() or 1) + 4), thread_name_prefix="render")
# A metrics page has two formats, and a scrape waits for one of them.
_SCRAPED = ThreadPoolExecutor(2, thread_name_prefix="scrape")


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
