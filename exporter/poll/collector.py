"""One source of the poller with its deadline and its health.

A source that does not answer in time is left behind: its call goes on, no second one is started beside it,
and the poll goes on without it. Failure and recovery are each logged once.
"""

import asyncio
import logging
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from exporter.model import CollectorHealth
from exporter.model.poll_result import DEADLINE

log = logging.getLogger(__name__)
T = TypeVar("T")
WORD = re.compile(r"\w+")


class Collector(Generic[T]):
    """Reads one source once per poll.

    An exception of ``read`` may carry a ``reason`` (a short stable word); others are counted by the name of
    their type. ``value`` is the last good answer, ``age`` its age, and
    ``late`` whether it came only after the poll that asked for it. ``accept_late``: such an answer counts;
    otherwise it is asked for again.
    ``tells``: it logs its failures at once; otherwise ``tell`` does.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[], Awaitable[T]],
        clock: Callable[[], float] = time.monotonic,
        *,
        tells: bool = True,
        accept_late: bool = True,
    ) -> None:
        self.name = name
        self.value: T | None = None
        self.late = False
        self._accept_late = accept_late
        self._read = read
        self._clock = clock
        self._tells = tells
        self._task: asyncio.Task[T] | None = None
        self._started = 0.0
        self._succeeded_at: float | None = None
        self._health = CollectorHealth(name=name, success=False, message="has not answered yet")
        self._errors: Counter[str] = Counter()
        self._failing = False

    @property
    def health(self) -> CollectorHealth:
        """How the source is doing after its last read."""
        return self._health

    @property
    def failure(self) -> str:
        """The reason why the last read failed, "" if it succeeded."""
        return self._health.reason

    @property
    def age(self) -> float | None:
        """Seconds since the last good answer, None before the first."""
        return None if self._succeeded_at is None else self._clock() - self._succeeded_at

    def is_fresh(self, stale_after: float) -> bool:
        """Return whether the last good answer is at most ``stale_after`` seconds old."""
        age = self.age
        return age is not None and age <= stale_after

    def fresh_value(self, stale_after: float) -> T | None:
        """Return the last good answer unless it is older than ``stale_after`` seconds."""
        return self.value if self.is_fresh(stale_after) else None

    async def collect(self, within: float) -> None:
        """Read the source for up to ``within`` seconds; look after a read that was left behind instead."""
        patience = 0.0
        if self._task is not None and self._task.done() and not self._accept_late:
            # Whatever it says was so when it was asked.
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        left_behind = self._task is not None
        if self._task is None:
            self._task = asyncio.ensure_future(self._read())
            self._started = self._clock()
            patience = within
        await asyncio.wait({self._task}, timeout=patience)
        if self._task.done():
            task, self._task = self._task, None
            self.late = left_behind
            self._finish(task)
        else:
            waited = self._clock() - self._started
            self._fail(DEADLINE, f"no answer for {waited:.0f} s; the poll goes on without it")

    async def cancel(self) -> None:
        """Stop waiting for a read that is still under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=0.1)
            self._task = None

    def _finish(self, task: "asyncio.Task[T]") -> None:
        error = task.exception() if not task.cancelled() else None
        if task.cancelled():
            self._fail("cancelled", "the read was cancelled")
        elif error is not None:
            self._fail(_reason(error), str(error) or repr(error))
        else:
            self._succeed(task.result())

    def _succeed(self, value: T) -> None:
        self.value = value
        self._succeeded_at = self._clock()
        duration = self._succeeded_at - self._started
        # A source that is always late has not recovered; its failure is not logged again either.
        if self._failing and not self.late:
            self._failing = False
            log.info("%s recovered", self.name)
        self._health = CollectorHealth(
            name=self.name,
            success=True,
            duration=duration,
            last_success=time.time(),
            errors=dict(self._errors),
        )

    def _fail(self, reason: str, message: str) -> None:
        self._errors[reason] += 1
        self._health = CollectorHealth(
            name=self.name,
            success=False,
            duration=self._clock() - self._started,
            last_success=self._health.last_success,
            errors=dict(self._errors),
            message=message,
            reason=reason,
        )
        if self._tells:
            self.tell()

    def tell(self) -> None:
        """Log a failure, once until it is over."""
        if self.failure and not self._failing:
            self._failing = True
            log.warning("%s failed: %s", self.name, self._health.message)


def _reason(error: BaseException) -> str:
    """Return the word that counts an error: its own, if it is one, else the name of its type."""
    reason = getattr(error, "reason", "")
    return reason if isinstance(reason, str) and WORD.fullmatch(reason) else type(error).__name__
