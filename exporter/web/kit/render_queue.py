"""A queue for expensive rendering: a few tasks at a time.

Clients can request more than can be rendered, and disconnect: a task without waiting clients
is not started, and if too many tasks wait, further requests are refused at once.
"""

import asyncio
import math
import weakref
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

    @property
    def result(self) -> Made | None:
        """The result; None before it is there, and if the task failed."""
        done = self.task.done() and not self.task.cancelled() and self.task.exception() is None
        return self.task.result() if done else None

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
    """Shared tasks by key, the ``most`` newest. A failed one is dropped: the next request tries again."""

    def __init__(self, most: float = math.inf) -> None:
        self.tasks: dict[Hashable, SharedTask[Any]] = {}
        self._most = most
        self._source: object = None
        self._second = 0

    def renew(self, source: object, second: int = 0) -> None:
        """Drop all tasks, unless they are for the same object and second."""
        if source is not self._source or second != self._second:
            self._source, self._second = source, second
            self.tasks = {}

    def start(
        self, key: Hashable, make: Callable[[], Awaitable[Made]], turns: RenderQueue | None = None
    ) -> SharedTask[Made]:
        """Return the task for a key, started unless it already is."""
        task: SharedTask[Made] | None = self.tasks.get(key)
        if task is None:
            task = self.tasks[key] = SharedTask(make, lambda failed: self.drop(key, failed), turns)
            while len(self.tasks) > self._most:
                del self.tasks[next(iter(self.tasks))]
        return task

    def drop(self, key: Hashable, task: SharedTask[Any]) -> None:
        """Drop a task, unless a newer one has its key."""
        if self.tasks.get(key) is task:
            del self.tasks[key]


MOST_BYTES = 16 << 20
MOST_THINGS = 64


class BodyCache:
    """Bodies by request, limited in number and size; the oldest are dropped first."""

    def __init__(self) -> None:
        self._cache = TaskCache()
        self._turns = RenderQueue()

    async def get(self, key: Hashable, seconds: float, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """Return the body made for this key within the last ``seconds``, else a new one.

        Answers 503 if too many bodies wait to be made.
        """
        if key in self._cache.tasks:
            return await self._cache.start(key, make).wait()
        self._turns.refuse_where_full()
        task = self._cache.start(key, make, self._turns)
        task.task.add_done_callback(lambda _: self._done(key, task, seconds))
        self._limit()
        return await task.wait()

    def _done(self, key: Hashable, task: SharedTask[bytes], seconds: float) -> None:
        if self._cache.tasks.get(key) is task:
            self._limit()
            # A weak reference, so that the timer does not keep bodies that were dropped.
            asyncio.get_running_loop().call_later(seconds, self._expire, key, weakref.ref(task))

    def _expire(self, key: Hashable, reference: "weakref.ref[SharedTask[bytes]]") -> None:
        task = reference()
        if task is not None:
            self._cache.drop(key, task)

    def _limit(self) -> None:
        tasks = self._cache.tasks
        sizes = {key: len(task.result or b"") for key, task in tasks.items()}
        total = sum(sizes.values())
        while len(tasks) > MOST_THINGS or total > MOST_BYTES:
            oldest = next(iter(tasks))
            del tasks[oldest]
            total -= sizes[oldest]
