"""Looking at the cluster again and again, so that a page is made of what is known already."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from exporter.fleet.model import Fleet
from exporter.fleet.read import NO_HOURS, Aim, NoExporterError, read_clock, read_fleet, read_hours
from exporter.prometheus import Prometheus, PrometheusError

log = logging.getLogger(__name__)
# GPU-hours over a day change little, and to ask for them is much work for Prometheus.
HOURS_EVERY = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What is known of the cluster: the last good look at it, None before the first.

    ``read_at`` is the Unix time of that here. ``error`` says why the newest look failed, "" where it did not,
    ``failing_since`` is the Unix time of the first of those that failed. ``seconds`` is how long the newest
    took; ``looks`` and ``failures`` count.
    """

    fleet: Fleet | None = None
    read_at: float | None = None
    error: str = ""
    failing_since: float | None = None
    seconds: float | None = None
    looks: int = 0
    failures: int = 0


class Watch:
    """Looks at the cluster every ``interval`` seconds. What is older than ``stale_after`` is not shown."""

    def __init__(
        self,
        prometheus: Prometheus,
        aim: Aim,
        *,
        interval: float,
        stale_after: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._prometheus = prometheus
        self._interval = interval
        self._stale_after = stale_after
        self._aim = aim
        self._clock = clock
        self._look = Look()
        self._hours = NO_HOURS
        self._hours_at = 0.0

    @property
    def look(self) -> Look:
        """What is known now."""
        look = self._look
        if look.read_at is None or self._clock() - look.read_at <= self._stale_after:
            return look
        return Look(
            error=look.error or "no newer answer has come",
            failing_since=look.failing_since,
            read_at=look.read_at,
            seconds=look.seconds,
            looks=look.looks,
            failures=look.failures,
        )

    async def run(self, told: Callable[[], None] = lambda: None) -> None:
        """Look for ever; ``told`` is called after each look."""
        while True:
            await self.refresh()
            told()
            await asyncio.sleep(self._interval)

    async def refresh(self) -> None:
        """Look once; what fails is noted, and the last good look stays."""
        started = time.monotonic()
        before = self._look
        try:
            await self._read_hours()
            fleet = await read_fleet(self._prometheus, self._aim, self._hours)
        except (PrometheusError, NoExporterError) as error:
            if not before.error:
                log.warning("the cluster cannot be looked at: %s", error)
            self._look = Look(
                fleet=before.fleet,
                read_at=before.read_at,
                error=str(error),
                failing_since=before.failing_since or self._clock(),
                seconds=time.monotonic() - started,
                looks=before.looks + 1,
                failures=before.failures + 1,
            )
            return
        if before.error:
            log.info("the cluster can be looked at again")
        self._look = Look(
            fleet=fleet,
            read_at=self._clock(),
            seconds=time.monotonic() - started,
            looks=before.looks + 1,
            failures=before.failures,
        )

    async def _read_hours(self) -> None:
        now = time.monotonic()
        if self._hours is NO_HOURS or now - self._hours_at >= HOURS_EVERY:
            at = await read_clock(self._prometheus)
            self._hours = await read_hours(self._prometheus, at, self._aim.window)
            self._hours_at = now
