"""A queue for expensive rendering: a few tasks at a time.

Clients can request more than can be rendered, and disconnect: a task without waiting clients
is not started, and if too many tasks wait, further requests are refused at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, TypeVar

from aiohttp import web

AT_ONCE = 2
MOST_WAITING = 32
RETRY_AFTER_SECONDS = 2

Made = TypeVar("Made")


class RenderQueue:
    """Runs a few tasks at a time; ``waiting`` ones follow in order."""

    def __init__(self) -> None:
        self.free = asyncio.Semaphore(AT_ONCE)
        self.waiting: set[SharedTask[Any]] = set()

    def refuse_where_full(self) -> None:
        """Raise HTTP 503 if too many tasks wait."""
        if len(self.waiting) >= MOST_WAITING:
            retry = {"Retry-After": str(RETRY_AFTER_SECONDS), "Cache-Control": "no-store"}
            raise web.HTTPServiceUnavailable(
                text="too many pages are being drawn; try again\n", headers=retry
            )


class SharedTask(Generic[Made]):
    """A task shared by all requests for its result; it waits for its turn in ``turns``.

    ``drop`` is called when it can no longer be waited for: it failed, or all clients have gone before its
    turn. A started task is finished, since a thread cannot be stopped.
    """

    def __init__(
        self,
        make: Callable[[], Awaitable[Made]],
        drop: Callable[["SharedTask[Made]"], object],
        turns: RenderQueue | None = None,
    ) -> None:
        self._readers = 0
        self._turns = turns or RenderQueue()
        self._drop = drop
        # Now, not when the event loop starts the task: many may be requested at the same time.
        self._turns.waiting.add(self)
        self.task = asyncio.ensure_future(self._make(make))
        self.task.add_done_callback(self._done)

    async def wait(self) -> Made:
        """Return the result when it is ready; raises the error of the task."""
        self._readers += 1
        try:
            # Shielded: a client that disconnects must not cancel it for the others.
            return await asyncio.shield(self.task)
        finally:
            self._readers -= 1
            if not self._readers and self in self._turns.waiting:
                self._turns.waiting.remove(self)
                self._drop(self)
                self.task.cancel()

    async def _make(self, make: Callable[[], Awaitable[Made]]) -> Made:
        async with self._turns.free:
            self._turns.waiting.remove(self)
            return await make()

    def _done(self, task: "asyncio.Task[Made]") -> None:
        if task.cancelled() or task.exception() is not None:
            self._drop(self)


class TaskCache:
    """Shared tasks by key. A failed one is dropped, so that the next request tries again."""

    def __init__(self) -> None:
        self.tasks: dict[Hashable, SharedTask[Any]] = {}

    def start(
        self, key: Hashable, make: Callable[[], Awaitable[Made]], turns: RenderQueue | None = None
    ) -> SharedTask[Made]:
        """Return the task for a key, started unless it already is."""
        task: SharedTask[Made] | None = self.tasks.get(key)
        if task is None:
            task = self.tasks[key] = SharedTask(make, lambda failed: self.drop(key, failed), turns)
        return task

    def drop(self, key: Hashable, task: SharedTask[Any]) -> None:
        """Drop a task, unless a newer one has its key."""
        if self.tasks.get(key) is task:
            del self.tasks[key]
