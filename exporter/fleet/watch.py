"""Reading the cluster: once, and at intervals, so that pages are made from the last answer.

All queries are of the same time, so that the answers are consistent.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Self

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from exporter.concurrency import in_thread
from exporter.exposition import SelfMetrics
from exporter.fleet import Fleet, attention, nodes, shares
from exporter.fleet.cluster_advice import ClusterAdvice, read_advice
from exporter.fleet.prometheus import Prometheus, PrometheusError
from exporter.fleet.queries import ask
from exporter.fleet.targets import MissingSeriesError, read_clock, read_targets_at

log = logging.getLogger(__name__)
# The pause after each read is at least this many times its duration.
_REST = 3.0
_STALE_INTERVALS = 20
# Advice goes by records of an hour, and its queries cost more.
ADVICE_INTERVAL = 600.0
_ADVICE_STALE = 6 * 3600.0


async def read_fleet(prometheus: Prometheus, window: float) -> Fleet:
    """Return the cluster, with GPU-hours of the last ``window`` seconds.

    Raises PrometheusError if nothing can be read, and MissingSeriesError if there are no nodes or no
    records. A query that fails otherwise is among the problems.
    """
    at = await read_clock(prometheus)
    scraped = await read_targets_at(prometheus, at)
    answers = await ask(
        prometheus, nodes.QUESTIONS | shares.namespace_questions(window) | attention.QUESTIONS, at
    )
    details = await ask(prometheus, attention.detail_questions(answers), at)

    def put_together() -> Fleet:
        read = tuple(nodes.read_nodes(answers, scraped.nodes))
        namespaces = shares.read_namespaces(answers, read)
        return Fleet(
            at=at,
            window=window,
            nodes=read,
            namespaces=namespaces.rows,
            all_namespaces=namespaces.all_known,
            idle=attention.read_idle(answers, details, scraped),
            idle_totals=attention.idle_totals(read),
            sick=tuple(attention.read_sick(answers, details, scraped)),
            all_sick=attention.is_whole(answers, read),
            problems=tuple({**answers.problems, **details.problems}.items()),
        )

    # For a large cluster this is too much work for the event loop.
    return await in_thread(put_together)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """The state of reading something."""

    read_at: float | None = None  # Unix time of the last good answer
    error: str = ""  # of the last read, "" if it succeeded
    failing_since: float | None = None  # Unix time of the first failed read since then
    reads: int = 0  # number of reads

    def failed(self, error: str, now: float) -> Self:
        """Return the state after a failed read."""
        return replace(self, error=error, failing_since=self.failing_since or now, reads=self.reads + 1)

    def is_within(self, seconds: float, now: float) -> bool:
        """Return whether the last good answer, if there is one, is not older."""
        return self.read_at is None or now - self.read_at <= seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceRead(_Read):
    """The current advice, and the state of reading it."""

    found: ClusterAdvice | None = None  # the last good answer, None before the first
    error: str = "it is read for the first time"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRead(_Read):
    """The current result, and the state of reading."""

    fleet: Fleet | None = None  # the last good answer, None before the first
    seconds: float | None = None  # duration of the last read
    interval: float = 0.0  # seconds until the next read
    failures: int = 0  # number of failed reads
    advice: AdviceRead = AdviceRead()


@dataclass(eq=False)
class Watch:
    """Reads the cluster every ``interval`` seconds, or less often if that takes long.

    GPU-hours are of the last ``window`` seconds.

    After 20 intervals without a new answer no data is shown.
    """

    prometheus: Prometheus
    _: KW_ONLY
    window: float
    interval: float
    clock: Callable[[], float] = time.time
    _advice: AdviceRead = field(default=AdviceRead(), init=False)

    def __post_init__(self) -> None:
        self._newest = FleetRead(interval=self.interval)

    @property
    def newest(self) -> FleetRead:
        """The current result."""
        read = replace(self._newest, advice=self._newest_advice())
        if read.is_within(_STALE_INTERVALS * read.interval, self.clock()):
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
        if read.is_within(_ADVICE_STALE, self.clock()):
            return read
        return replace(read, found=None, error=read.error or "no newer answer has come")

    async def refresh_advice(self) -> float:
        """Read the advice once, and return the seconds it took; the last good answer stays after an error."""
        started, previous = time.monotonic(), self._advice
        try:
            found = await read_advice(self.prometheus)
        except (PrometheusError, MissingSeriesError) as error:
            if str(error) != previous.error:
                log.warning("cannot read the advice of the cluster: %s; retrying", error)
            self._advice = previous.failed(str(error), self.clock())
        except Exception as error:
            # Advice that fails in an unforeseen way must not end the reads of the cluster.
            log.exception("cannot make the advice of the cluster")
            self._advice = previous.failed(repr(error), self.clock())
        else:
            self._advice = AdviceRead(found=found, read_at=self.clock(), error="", reads=previous.reads + 1)
        return time.monotonic() - started

    async def refresh(self) -> None:
        """Read once; an error is noted, and the last good answer stays."""
        started = time.monotonic()
        previous = self._newest
        try:
            fleet = await read_fleet(self.prometheus, self.window)
        except (PrometheusError, MissingSeriesError) as error:
            if not previous.error:
                log.warning("cannot read the cluster: %s; retrying", error)
            read = replace(previous.failed(str(error), self.clock()), failures=previous.failures + 1)
        else:
            if previous.error:
                log.info("reading the cluster again")
            read = FleetRead(fleet=fleet, read_at=self.clock(), failures=previous.failures)
        seconds = time.monotonic() - started
        interval = max(self.interval, _REST * seconds)
        self._newest = replace(read, seconds=seconds, interval=interval, reads=previous.reads + 1)


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
        fleet = read.fleet
        for counter, text, count in (
            ("reads", "Reads of the cluster from Prometheus, failed ones too.", read.reads),
            ("read_failures", "Reads of the cluster that failed.", read.failures),
        ):
            yield CounterMetricFamily(f"gpuslice_hub_{counter}", text, value=count)
        gauges: tuple[tuple[str, str, float | None], ...] = (
            (
                "up",
                "1 if the newest read of the cluster succeeded.",
                int(bool(read.reads) and not read.error),
            ),
            (
                "last_success_timestamp_seconds",
                "Unix time of the newest successful read of the cluster.",
                read.read_at,
            ),
            ("read_duration_seconds", "Duration of the newest read of the cluster.", read.seconds),
            ("nodes", "Nodes that Prometheus has series of.", None if fleet is None else len(fleet.nodes)),
            ("nodes_silent", "Nodes that do not answer.", None if fleet is None else len(fleet.silent)),
            (
                "problems",
                "Queries of the newest read that failed.",
                None if fleet is None else len(fleet.problems),
            ),
        )
        for name, text, value in gauges:
            if value is not None:
                yield GaugeMetricFamily(f"gpuslice_hub_{name}", text, value=value)
