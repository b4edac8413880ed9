"""A thread for what asks a driver: one that hangs is left behind, and another goes on in its place."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from exporter.worker import Worker

T = TypeVar("T")
# So often it is looked whether a job hangs, within the time that one call may take.
LOOKS = 5
# A call about one device that takes longer hangs, where nothing else is said.
PATIENCE_SECONDS = 2.5


class PatientWorker:
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
