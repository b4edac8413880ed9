"""Runs the join of a poll in its thread, and publishes the snapshot, within the rest of the budget.

``snapshot_builder.py`` builds the snapshot; ``exporter/attribution/`` is the join.
"""

import asyncio
from collections.abc import Callable

from exporter.concurrency import Worker
from exporter.model import Snapshot


class JoinLateError(Exception):
    """A snapshot was not built within the budget of its poll."""


class Joiner:
    """Runs one join at a time and passes each snapshot to ``publish``, on the event loop."""

    def __init__(self, publish: Callable[[Snapshot], None]) -> None:
        self._publish = publish
        self._worker = Worker("join")
        self._running: asyncio.Future[Snapshot] | None = None

    async def run(self, build: Callable[[], Snapshot], seconds_left: Callable[[], float]) -> None:
        """Build and publish a snapshot; ``seconds_left`` returns the seconds that this may take.

        Raises JoinLateError if it takes longer, and the errors of ``build``. The next call publishes a late
        snapshot, so that a join that is always late still shows something.
        """
        if self._running is not None:
            await self._finish(self._running, seconds_left())
        self._running = asyncio.ensure_future(self._worker.run(build))
        await self._finish(self._running, seconds_left())

    async def _finish(self, running: "asyncio.Future[Snapshot]", within: float) -> None:
        await asyncio.wait({running}, timeout=within)
        if not running.done():
            raise JoinLateError("the join takes longer than the rest of the polling interval")
        self._running = None
        self._publish(running.result())

    def stop(self) -> None:
        """Stop the thread after the join that is running."""
        self._worker.stop()
