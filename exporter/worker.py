"""One daemon thread for calls that may block for ever.

The pools of the standard library are joined when the program ends, so that one call stuck in a driver or
in a file system would keep it from ending.
"""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


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
