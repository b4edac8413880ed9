"""Things that take long to make, kept for a moment, so that many who ask cost no more than one."""

import asyncio
import weakref
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable

MOST_BYTES = 16 << 20
MOST_THINGS = 64
AT_ONCE = 2


class Kept:
    """Bodies by what was asked, at most so many and so large altogether; the oldest go first.

    No more than ``AT_ONCE`` are made at the same time, and those who ask for one meanwhile wait for it.
    """

    def __init__(self) -> None:
        self._made: OrderedDict[Hashable, asyncio.Task[bytes]] = OrderedDict()
        self._turn = asyncio.Semaphore(AT_ONCE)

    async def get(self, key: Hashable, seconds: float, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """Give what was made for this key within the last ``seconds``, or make it."""
        task = self._made.get(key)
        if task is None:
            task = self._made[key] = asyncio.ensure_future(self._make(make))
            task.add_done_callback(lambda done: self._done(key, done, seconds))
            self._bound()
        # One reader that goes away must not take the body from the others.
        return await asyncio.shield(task)

    async def _make(self, make: Callable[[], Awaitable[bytes]]) -> bytes:
        async with self._turn:
            return await make()

    def _done(self, key: Hashable, task: "asyncio.Task[bytes]", seconds: float) -> None:
        if task.cancelled() or task.exception() is not None:
            self._drop(key, task)
            return
        self._bound()
        # The timer must not hold on to what has had to make room.
        asyncio.get_running_loop().call_later(seconds, self._expire, key, weakref.ref(task))

    def _expire(self, key: Hashable, made: "weakref.ref[asyncio.Task[bytes]]") -> None:
        task = made()
        if task is not None:
            self._drop(key, task)

    def _drop(self, key: Hashable, task: "asyncio.Task[bytes]") -> None:
        if self._made.get(key) is task:
            del self._made[key]

    def _bound(self) -> None:
        sizes = {key: _size(task) for key, task in self._made.items()}
        total = sum(sizes.values())
        while len(self._made) > MOST_THINGS or total > MOST_BYTES:
            key, _ = self._made.popitem(last=False)
            total -= sizes[key]


def _size(task: "asyncio.Task[bytes]") -> int:
    done = task.done() and not task.cancelled() and task.exception() is None
    return len(task.result()) if done else 0
