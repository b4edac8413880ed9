"""Reading the cluster at intervals, so that pages are made from the last answer."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from exporter.exposition.self_metrics import SelfMetrics
from exporter.fleet.cluster_advice import ClusterAdvice, NoRecordsError, read_advice
from exporter.fleet.cluster_model import Fleet
from exporter.fleet.read import MissingSeriesError, read_fleet
from exporter.prometheus import Prometheus, PrometheusError

log = logging.getLogger(__name__)
# The pause after each read is at least this many times its duration.
_REST = 3.0
_STALE_INTERVALS = 20
# Advice goes by records of an hour, and its queries cost more.
ADVICE_INTERVAL = 600.0
_ADVICE_STALE = 6 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceRead:
    """The current advice, and the state of reading it."""

    found: ClusterAdvice | None = None  # the last good answer, None before the first
    read_at: float | None = None  # Unix time of the last good answer
    error: str = "it is read for the first time"  # of the last read, "" if it succeeded
    failing_since: float | None = None  # Unix time of the first failed read since then
    reads: int = 0  # number of reads


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRead:
    """The current result, and the state of reading."""

    fleet: Fleet | None = None  # the last good answer, None before the first
    read_at: float | None = None  # Unix time of the last good answer
    error: str = ""  # of the last read, "" if it succeeded
    failing_since: float | None = None  # Unix time of the first failed read since then
    seconds: float | None = None  # duration of the last read
    interval: float = 0.0  # seconds until the next read
    reads: int = 0  # number of reads
    failures: int = 0  # number of failed reads
    advice: AdviceRead = AdviceRead()


class Watch:
    """Reads the cluster every ``interval`` seconds, or less often if that takes long.

    GPU-hours are of the last ``window`` seconds.

    After 20 intervals without a new answer no data is shown.
    """

    def __init__(
        self,
        prometheus: Prometheus,
        *,
        window: float,
        interval: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._prometheus = prometheus
        self._interval = interval
        self._window = window
        self._clock = clock
        self._newest = FleetRead(interval=interval)
        self._advice = AdviceRead()

    @property
    def newest(self) -> FleetRead:
        """The current result."""
        read = replace(self._newest, advice=self._newest_advice())
        if read.read_at is None or self._clock() - read.read_at <= _STALE_INTERVALS * read.interval:
            return read
        return replace(read, fleet=None, error=read.error or "no newer answer has come")

    async def run(self, notify: Callable[[], None] = lambda: None) -> None:
        """Read forever; ``notify`` is called after each read."""

        async def fleet() -> None:
            while True:
                await self.refresh()
                notify()
                await asyncio.sleep(self._newest.interval)

        async def advice() -> None:
            while True:
                seconds = await self.refresh_advice()
                notify()
                await asyncio.sleep(max(ADVICE_INTERVAL, _REST * seconds))

        async with asyncio.TaskGroup() as group:
            group.create_task(fleet())
            group.create_task(advice())

    def _newest_advice(self) -> AdviceRead:
        read = self._advice
        if read.read_at is None or self._clock() - read.read_at <= _ADVICE_STALE:
            return read
        return replace(read, found=None, error=read.error or "no newer answer has come")

    async def refresh_advice(self) -> float:
        """Read the advice once, and return the seconds it took; the last good answer stays after an error."""
        started, previous = time.monotonic(), self._advice
        try:
            found = await read_advice(self._prometheus)
        except (PrometheusError, NoRecordsError) as error:
            if str(error) != previous.error:
                log.warning("cannot read the advice of the cluster: %s; retrying", error)
            self._advice = self._failed(str(error))
        except Exception as error:
            # Advice that fails in an unforeseen way must not end the reads of the cluster.
            log.exception("cannot make the advice of the cluster")
            self._advice = self._failed(repr(error))
        else:
            self._advice = AdviceRead(found=found, read_at=self._clock(), error="", reads=previous.reads + 1)
        return time.monotonic() - started

    def _failed(self, error: str) -> AdviceRead:
        """Return the state after a failed read of advice."""
        read = self._advice
        since = read.failing_since or self._clock()
        return replace(read, error=error, failing_since=since, reads=read.reads + 1)

    async def refresh(self) -> None:
        """Read once; an error is noted, and the last good answer stays."""
        started = time.monotonic()
        previous = self._newest
        try:
            fleet = await read_fleet(self._prometheus, self._window)
        except (PrometheusError, MissingSeriesError) as error:
            if not previous.error:
                log.warning("cannot read the cluster: %s; retrying", error)
            read = replace(
                previous,
                error=str(error),
                failing_since=previous.failing_since or self._clock(),
                failures=previous.failures + 1,
            )
        else:
            if previous.error:
                log.info("reading the cluster again")
            read = FleetRead(fleet=fleet, read_at=self._clock(), failures=previous.failures)
        seconds = time.monotonic() - started
        self._newest = replace(
            read,
            seconds=seconds,
            interval=max(self._interval, _REST * seconds),
            reads=previous.reads + 1,
        )


def hub_registry(current: Callable[[], FleetRead]) -> CollectorRegistry:
    """Return a registry with the hub's own series, and those of its process and build."""
    registry = SelfMetrics().registry
    registry.register(_HubMetrics(current))
    return registry


class _HubMetrics(Collector):
    def __init__(self, current: Callable[[], FleetRead]) -> None:
        self._current = current

    def collect(self) -> Iterator[Metric]:
        read = self._current()
        reads = CounterMetricFamily(
            "gpuslice_hub_reads", "Reads of the cluster from Prometheus, failed ones too."
        )
        reads.add_metric((), read.reads)
        yield reads
        failures = CounterMetricFamily("gpuslice_hub_read_failures", "Reads of the cluster that failed.")
        failures.add_metric((), read.failures)
        yield failures
        yield _gauge(
            "up", "1 if the newest read of the cluster succeeded.", int(bool(read.reads) and not read.error)
        )
        if read.read_at is not None:
            text = "Unix time of the newest successful read of the cluster."
            yield _gauge("last_success_timestamp_seconds", text, read.read_at)
        if read.seconds is not None:
            yield _gauge("read_duration_seconds", "Duration of the newest read of the cluster.", read.seconds)
        if read.fleet is not None:
            yield _gauge("nodes", "Nodes that Prometheus has series of.", len(read.fleet.nodes))
            yield _gauge("nodes_silent", "Nodes that do not answer.", len(read.fleet.silent))
            yield _gauge("problems", "Queries of the newest read that failed.", len(read.fleet.problems))


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"gpuslice_hub_{name}", text, value=value)
