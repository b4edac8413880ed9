"""Turns to make what is dear: a few things at a time, for those who wait for them.

Threads and memory are for everybody. Clients can ask for more than can be made, and leave: what nobody waits
for any more is not begun, and where too much waits already, who asks for one thing more is told so at once.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from aiohttp import web

AT_ONCE = 2
MOST_WAITING = 32
RETRY_AFTER_SECONDS = 2

Made = TypeVar("Made")


class RenderQueue:
    """A few things are made at once; those that are ``waiting`` get their turn in their order."""

    def __init__(self) -> None:
        self.free = asyncio.Semaphore(AT_ONCE)
        self.waiting: set[SharedTask[Any]] = set()

    def refuse_where_full(self) -> None:
        """Answer 503 where so many wait already that another would wait for long."""
        if len(self.waiting) >= MOST_WAITING:
            retry = {"Retry-After": str(RETRY_AFTER_SECONDS), "Cache-Control": "no-store"}
            raise web.HTTPServiceUnavailable(text="too much is asked for here at once\n", headers=retry)


class SharedTask(Generic[Made]):
    """Something in the making, for all who wait for it; it waits itself for one of ``turns``, if need be.

    ``drop`` is called when nobody may wait for it any more: it failed, or all have gone who waited before its
    turn came. What is begun is finished, since a thread cannot be stopped.
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
        # From now on, and not only from when the loop comes to it: many may be asked for in one go.
        self._turns.waiting.add(self)
        self.task = asyncio.ensure_future(self._make(make))
        self.task.add_done_callback(self._done)

    async def wait(self) -> Made:
        """Give it as soon as it is made; raises why it cannot be."""
        self._readers += 1
        try:
            # One reader that goes away must not take it from the others.
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
