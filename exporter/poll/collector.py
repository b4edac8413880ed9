"""What the poller waits for until a deadline: a source, with its health, and the join.

The poll goes on without a source that does not answer in time; its call keeps running, and no second one is
started meanwhile. Failure and recovery are each logged once.
"""

import asyncio
import logging
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from exporter.concurrency import Worker
from exporter.model import CollectorHealth, Snapshot
from exporter.model.poll_result import DEADLINE
from exporter.wording import decimal

log = logging.getLogger(__name__)
T = TypeVar("T")
WORD = re.compile(r"\w+")


class Collector(Generic[T]):
    """Reads one source once per poll.

    Errors are counted by the ``reason`` of the exception, a short stable word, or by its type if it has none.
    ``accept_late``: an answer that comes after its poll counts; otherwise the source is read again.
    ``logs_failures``: failures are logged at once; otherwise ``log_failure`` does it.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[], Awaitable[T]],
        clock: Callable[[], float] = time.monotonic,
        *,
        logs_failures: bool = True,
        accept_late: bool = True,
    ) -> None:
        self.name = name
        self.value: T | None = None  # the last good answer
        self.late = False  # whether that answer came after the poll that asked for it
        self._accept_late = accept_late
        self._read = read
        self._clock = clock
        self._logs_failures = logs_failures
        self._task: asyncio.Task[T] | None = None
        self._started = 0.0
        self._succeeded_at: float | None = None
        # The health of the source after its last read.
        self.health = CollectorHealth(name=name, success=False, message="has not answered yet")
        self._errors: Counter[str] = Counter()
        self._failing = False

    @property
    def failure(self) -> str:
        """The reason why the last read failed, "" if it succeeded."""
        return self.health.reason

    def is_fresh(self, stale_after: float) -> bool:
        """Return whether the last good answer is at most ``stale_after`` seconds old."""
        return self._succeeded_at is not None and self._clock() - self._succeeded_at <= stale_after

    def fresh_value(self, stale_after: float) -> T | None:
        """Return the last good answer unless it is older than ``stale_after`` seconds."""
        return self.value if self.is_fresh(stale_after) else None

    async def collect(self, within: float) -> None:
        """Read the source for up to ``within`` seconds, or check on a read that is still running."""
        timeout = 0.0
        if self._task is not None and self._task.done() and not self._accept_late:
            # The answer describes the time of an earlier poll.
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        late = self._task is not None
        if self._task is None:
            self._task = asyncio.ensure_future(self._read())
            self._started = self._clock()
            timeout = within
        await asyncio.wait({self._task}, timeout=timeout)
        if self._task.done():
            task, self._task = self._task, None
            self.late = late
            self._finish(task)
        else:
            waited = self._clock() - self._started
            self._fail(DEADLINE, f"no answer for {decimal(waited, 0)} s; the poll goes on without it")

    async def cancel(self) -> None:
        """Stop waiting for a read that is still running."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=0.1)
            self._task = None

    def _finish(self, task: "asyncio.Task[T]") -> None:
        if task.cancelled():
            self._fail("cancelled", "the read was cancelled")
        elif (error := task.exception()) is not None:
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
        self.health = CollectorHealth(
            name=self.name,
            success=True,
            duration=duration,
            last_success=time.time(),
            errors=dict(self._errors),
        )

    def _fail(self, reason: str, message: str) -> None:
        self._errors[reason] += 1
        self.health = CollectorHealth(
            name=self.name,
            success=False,
            duration=self._clock() - self._started,
            last_success=self.health.last_success,
            errors=dict(self._errors),
            message=message,
            reason=reason,
        )
        if self._logs_failures:
            self.log_failure()

    def log_failure(self) -> None:
        """Log a failure, once until the source recovers."""
        if self.failure and not self._failing:
            self._failing = True
            log.warning("%s failed: %s", self.name, self.health.message)


def _reason(error: BaseException) -> str:
    """Return the word that an error is counted by: its ``reason`` if that is one word, else its type."""
    reason = getattr(error, "reason", "")
    return reason if isinstance(reason, str) and WORD.fullmatch(reason) else type(error).__name__


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
