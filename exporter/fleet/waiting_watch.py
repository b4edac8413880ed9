"""Keeps the answers about waiting pods for the hub, made at intervals of the newest view of the cluster."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from exporter.fleet.cluster_advice import ClusterAdvice
from exporter.fleet.cluster_view import ClusterView
from exporter.fleet.prometheus import Prometheus
from exporter.fleet.waiting import Counts, Waiting, count, read_waiting

log = logging.getLogger(__name__)
_REST: Final = 3.0
_STALE_INTERVALS: Final = 20
# While pods are not known, they may be at any moment.
_SOON: Final = 5.0
_FIRST: Final = "pods that wait are read for the first time"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRead:
    """The current answers, and the state of making them."""

    waiting: Waiting | None = None  # the last answers, None before the first
    counts: Counts = field(default_factory=Counts)
    error: str = _FIRST  # of the newest try, "" if it succeeded
    reads: int = 0
    interval: float = 0.0  # seconds until the next try


class WaitingWatch:
    """Makes the answers every ``interval`` seconds, or less often if that takes long."""

    def __init__(
        self,
        prometheus: Prometheus,
        view: Callable[[], ClusterView],
        advice: Callable[[], ClusterAdvice | None],
        *,
        interval: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._prometheus = prometheus
        self._view, self._advice = view, advice
        self._interval, self._clock = interval, clock
        self._read = WaitingRead(interval=interval)

    @property
    def newest(self) -> WaitingRead:
        """The current answers; none once they are much older than the interval."""
        read = self._read
        stale = _STALE_INTERVALS * read.interval
        if read.waiting is not None and self._clock() - read.waiting.at > stale:
            return replace(
                read, waiting=None, counts=Counts(), error=read.error or "no newer answer has come"
            )
        return read

    async def run(self, notify: Callable[[], None]) -> None:
        """Make the answers forever; ``notify`` is called after each time."""
        while True:
            pause = await self.refresh()
            notify()
            await asyncio.sleep(pause)

    async def refresh(self) -> float:
        """Make the answers once, and return the seconds until the next time."""
        started, previous = time.monotonic(), self._read
        try:
            waiting = await read_waiting(self._prometheus, self._view(), self._advice())
        except Exception as error:
            # Answers that fail in an unforeseen way must not end the hub; the last ones stay.
            log.exception("cannot answer why pods wait")
            read = replace(previous, error=repr(error), reads=previous.reads + 1)
        else:
            read = WaitingRead(waiting=waiting, counts=count(waiting), error="", reads=previous.reads + 1)
        known = read.waiting is not None and read.waiting.answers is not None
        interval = self._interval if known else min(self._interval, _SOON)
        pause = max(interval, _REST * (time.monotonic() - started))
        self._read = replace(read, interval=pause)
        return pause
