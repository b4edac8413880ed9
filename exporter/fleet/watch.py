"""Reading the cluster at intervals, so that pages are made from the last answer."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from exporter.exposition.self_metrics import SelfMetrics
from exporter.fleet.cluster_model import Fleet
from exporter.fleet.read import NO_HOURS, Aim, NoExporterError, read_clock, read_fleet, read_hours
from exporter.prometheus import Prometheus, PrometheusError

log = logging.getLogger(__name__)
# GPU-hours over a day change little, and their query is expensive for Prometheus.
HOURS_EVERY = 300.0
# If their query fails, the previous GPU-hours are shown for this many seconds at most.
_HOURS_KEPT = 2 * HOURS_EVERY
# The pause after each read is at least this many times its duration.
_REST = 3.0
_STALE_INTERVALS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The current result, and the state of reading."""

    fleet: Fleet | None = None  # the last good answer, None before the first
    read_at: float | None = None  # Unix time of the last good answer
    error: str = ""  # of the last read, "" if it succeeded
    failing_since: float | None = None  # Unix time of the first failed read since then
    seconds: float | None = None  # duration of the last read
    interval: float = 0.0  # seconds until the next read
    looks: int = 0  # number of reads
    failures: int = 0  # number of failed reads


class Watch:
    """Reads the cluster every ``interval`` seconds, or less often if that takes long.

    After 20 intervals without a new answer no data is shown.
    """

    def __init__(
        self,
        prometheus: Prometheus,
        aim: Aim,
        *,
        interval: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._prometheus = prometheus
        self._interval = interval
        self._aim = aim
        self._clock = clock
        self._look = Look(interval=interval)
        self._hours = NO_HOURS
        self._hours_at = -math.inf

    @property
    def look(self) -> Look:
        """The current result."""
        look = self._look
        if look.read_at is None or self._clock() - look.read_at <= _STALE_INTERVALS * look.interval:
            return look
        return replace(look, fleet=None, error=look.error or "no newer answer has come")

    async def run(self, notify: Callable[[], None] = lambda: None) -> None:
        """Read forever; ``notify`` is called after each read."""
        while True:
            await self.refresh()
            notify()
            await asyncio.sleep(self._look.interval)

    async def refresh(self) -> None:
        """Read once; an error is noted, and the last good answer stays."""
        started = time.monotonic()
        previous = self._look
        try:
            await self._read_hours()
            fleet = await read_fleet(self._prometheus, self._aim, self._hours)
        except (PrometheusError, NoExporterError) as error:
            if not previous.error:
                log.warning("cannot read the cluster: %s; retrying", error)
            look = replace(
                previous,
                error=str(error),
                failing_since=previous.failing_since or self._clock(),
                failures=previous.failures + 1,
            )
        else:
            if previous.error:
                log.info("reading the cluster again")
            look = Look(fleet=fleet, read_at=self._clock(), failures=previous.failures)
        seconds = time.monotonic() - started
        self._look = replace(
            look,
            seconds=seconds,
            interval=max(self._interval, _REST * seconds),
            looks=previous.looks + 1,
        )

    async def _read_hours(self) -> None:
        """Query GPU-hours again if they are old; a failed query is sent again at each read."""
        now = time.monotonic()
        age = now - self._hours_at
        if age < HOURS_EVERY:
            return
        at = await read_clock(self._prometheus)
        hours = await read_hours(self._prometheus, at, self._aim.window)
        if not hours.problems:
            self._hours, self._hours_at = hours, now
        elif age >= _HOURS_KEPT:
            self._hours = hours


def hub_registry(current: Callable[[], Look]) -> CollectorRegistry:
    """Return a registry with the hub's own series, and those of its process and build."""
    registry = SelfMetrics().registry
    registry.register(_Looks(current))
    return registry


class _Looks(Collector):
    def __init__(self, current: Callable[[], Look]) -> None:
        self._current = current

    def collect(self) -> Iterator[Metric]:
        look = self._current()
        looks = CounterMetricFamily("gpuslice_hub_looks", "Times that the cluster was looked at.")
        looks.add_metric((), look.looks)
        yield looks
        failures = CounterMetricFamily("gpuslice_hub_failures", "Looks at the cluster that failed.")
        failures.add_metric((), look.failures)
        yield failures
        yield _gauge(
            "up", "1 if the newest look at the cluster succeeded.", int(bool(look.looks) and not look.error)
        )
        if look.read_at is not None:
            text = "Unix time of the newest look at the cluster that succeeded."
            yield _gauge("last_success_timestamp_seconds", text, look.read_at)
        if look.seconds is not None:
            yield _gauge("duration_seconds", "How long the newest look at the cluster took.", look.seconds)
        if look.fleet is not None:
            yield _gauge("nodes", "Nodes that are known.", len(look.fleet.nodes))
            yield _gauge("nodes_silent", "Nodes that do not answer.", len(look.fleet.silent))
            yield _gauge("problems", "Questions of the newest look that failed.", len(look.fleet.problems))


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"gpuslice_hub_{name}", text, value=value)
