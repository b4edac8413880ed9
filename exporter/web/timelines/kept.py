"""Things that take long to make, kept for a moment, so that many who ask cost no more than one."""

import asyncio
import weakref
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable

from exporter.web.serving.turns import Turns, Work

MOST_BYTES = 16 << 20
MOST_THINGS = 64


class Kept:
    """Bodies by what was asked, at most so many and so large altogether; the oldest go first.

    They are made in turns, and those who ask for one meanwhile wait for it.
    """

    def __init__(self) -> None:
        self._made: OrderedDict[Hashable, Work[bytes]] = OrderedDict()
        self._turns = Turns()

    async def get(self, key: Hashable, seconds: float, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """Give what was made for this key within the last ``seconds``, or make it.

        Answers 503 where too much waits to be made.
        """
        work = self._made.get(key)
        if work is None:
            self._turns.refuse_where_full()
            work = Work(make, lambda failed: self._drop(key, failed), self._turns)
            self._made[key] = work
            work.task.add_done_callback(lambda _: self._done(key, work, seconds))
            self._bound()
        return await work.wait()

    def _done(self, key: Hashable, work: Work[bytes], seconds: float) -> None:
        if self._made.get(key) is work:
            self._bound()
            # The timer must not hold on to what has had to make room.
            asyncio.get_running_loop().call_later(seconds, self._expire, key, weakref.ref(work))

    def _expire(self, key: Hashable, made: "weakref.ref[Work[bytes]]") -> None:
        work = made()
        if work is not None:
            self._drop(key, work)

    def _drop(self, key: Hashable, work: Work[bytes]) -> None:
        if self._made.get(key) is work:
            del self._made[key]

    def _bound(self) -> None:
        sizes = {key: _size(work.task) for key, work in self._made.items()}
        total = sum(sizes.values())
        while len(self._made) > MOST_THINGS or total > MOST_BYTES:
            key, _ = self._made.popitem(last=False)
            total -= sizes[key]


def _size(task: "asyncio.Task[bytes]") -> int:
    done = task.done() and not task.cancelled() and task.exception() is None
    return len(task.result()) if done else 0
