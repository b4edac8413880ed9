"""Reading the cluster: once, for a page or for ``inspect``, and at intervals for the hub.

All queries are of the same time, so that the answers are consistent.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from exporter.concurrency import in_thread
from exporter.fleet import nodes, sick_and_idle
from exporter.fleet.cluster_advice import ClusterAdvice, read_advice
from exporter.fleet.gpus import Gpu, gpu_questions, read_gpus
from exporter.fleet.model import Fleet, Node, Target
from exporter.fleet.namespaces import namespace_questions, read_names, read_namespaces
from exporter.fleet.prometheus import Prometheus, PrometheusError
from exporter.fleet.queries import ask
from exporter.fleet.targets import MissingSeriesError, UnknownNameError, query_targets, read_clock, some_names
from exporter.wording import printable

log = logging.getLogger(__name__)
# The pause after each read is at least this many times its duration.
_REST = 3.0
_STALE_INTERVALS = 20
# Advice goes by records of an hour, and its queries cost more.
_ADVICE_INTERVAL = 600.0
_ADVICE_STALE = 6 * 3600.0
_STALE = "no newer answer has come"


async def read_fleet(prometheus: Prometheus, window: float) -> Fleet:
    """Return the cluster, with GPU-hours of the last ``window`` seconds.

    Raises PrometheusError if nothing can be read, and MissingSeriesError if there are no nodes or no
    records. A query that fails otherwise is among the problems.
    """
    at = await read_clock(prometheus)
    targets = await query_targets(prometheus, at)
    questions = nodes.QUESTIONS | namespace_questions(window) | sick_and_idle.QUESTIONS
    answers = await ask(prometheus, questions, at)
    details = await ask(prometheus, sick_and_idle.detail_questions(answers), at)

    def put_together() -> Fleet:
        with_values = tuple(nodes.read_nodes(answers, targets.nodes))
        namespaces, all_namespaces = read_namespaces(answers, with_values)
        return Fleet(
            at=at,
            window=window,
            nodes=with_values,
            namespaces=namespaces,
            all_namespaces=all_namespaces,
            idle=sick_and_idle.read_idle(answers, details, targets),
            sick=sick_and_idle.read_sick(answers, details, targets),
            all_sick=sick_and_idle.lists_all_sick(answers, with_values),
            problems=tuple({**answers.problems, **details.problems}.items()),
            cluster_namespaces=read_names(answers),
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

    def is_stale(self, seconds: float, now: float) -> bool:
        """Return whether the last good answer is older than this."""
        return self.read_at is not None and now - self.read_at > seconds


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


class Watch:
    """Reads the cluster every ``interval`` seconds, or less often if that takes long.

    GPU-hours are of the last ``window`` seconds. After 20 intervals without a new answer no data is shown.
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
        self._window = window
        self._interval = interval
        self._clock = clock
        self._fleet = FleetRead(interval=interval)
        self._advice = AdviceRead()

    @property
    def newest(self) -> FleetRead:
        """The current result."""
        now = self._clock()
        read, advice = self._fleet, self._advice
        if read.is_stale(_STALE_INTERVALS * read.interval, now):
            read = replace(read, fleet=None, error=read.error or _STALE)
        if advice.is_stale(_ADVICE_STALE, now):
            advice = replace(advice, found=None, error=advice.error or _STALE)
        return replace(read, advice=advice)

    async def run(self, notify: Callable[[], None] = lambda: None) -> None:
        """Read forever; ``notify`` is called after each read."""

        async def repeat(refresh: Callable[[], Awaitable[float]]) -> None:
            while True:
                pause = await refresh()
                notify()
                await asyncio.sleep(pause)

        async with asyncio.TaskGroup() as group:
            group.create_task(repeat(self.refresh))
            group.create_task(repeat(self.refresh_advice))

    async def refresh(self) -> float:
        """Read the cluster once, and return the seconds until the next read.

        An error is noted, and the last good answer stays.
        """
        started, previous = time.monotonic(), self._fleet
        try:
            fleet = await read_fleet(self._prometheus, self._window)
        except (PrometheusError, MissingSeriesError) as error:
            if not previous.error:
                log.warning("cannot read the cluster: %s; retrying", error)
            read = replace(previous.failed(str(error), self._clock()), failures=previous.failures + 1)
        else:
            if previous.error:
                log.info("reading the cluster again")
            read = FleetRead(
                fleet=fleet, read_at=self._clock(), reads=previous.reads + 1, failures=previous.failures
            )
        seconds = time.monotonic() - started
        self._fleet = replace(read, seconds=seconds, interval=max(self._interval, _REST * seconds))
        return self._fleet.interval

    async def refresh_advice(self) -> float:
        """Read the advice once, likewise."""
        started, previous = time.monotonic(), self._advice
        try:
            found = await read_advice(self._prometheus)
        except (PrometheusError, MissingSeriesError) as error:
            if str(error) != previous.error:
                log.warning("cannot read the advice of the cluster: %s; retrying", error)
            self._advice = previous.failed(str(error), self._clock())
        except Exception as error:
            # Advice that fails in an unforeseen way must not end the reads of the cluster.
            log.exception("cannot make the advice of the cluster")
            self._advice = previous.failed(repr(error), self._clock())
        else:
            self._advice = AdviceRead(found=found, read_at=self._clock(), error="", reads=previous.reads + 1)
        return max(_ADVICE_INTERVAL, _REST * (time.monotonic() - started))


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """Nodes, with their GPUs if these were asked for."""

    at: float  # Unix time of Prometheus
    nodes: tuple[tuple[Node, tuple[Gpu, ...] | None], ...]  # GPUs are None if unknown
    gpus: bool  # whether GPUs were asked for
    problems: tuple[tuple[str, str], ...] = ()  # failed queries and their errors
    only: tuple[str, ...] = ()  # namespaces of the holders, () if they are of all


async def inspect(
    prometheus: Prometheus, names: Sequence[str], *, details: bool, idle_after: float, holders: bool = False
) -> Inspection:
    """Return all nodes or the named ones; these, or all with ``details``, with their GPUs and holders.

    With ``holders`` these are read although GPUs are not asked for.

    Raises PrometheusError, MissingSeriesError and UnknownNameError.
    """
    at = await read_clock(prometheus)
    wanted = _named((await query_targets(prometheus, at)).nodes, names)
    answers = await ask(prometheus, nodes.QUESTIONS, at)
    with_gpus = details or bool(names)
    reading = with_gpus or holders
    answering = {node.key.name for node in wanted if not node.silent and reading}
    of_gpus = await ask(prometheus, gpu_questions(answering), at)
    gpus = read_gpus(of_gpus, at, idle_after)
    return Inspection(
        at=at,
        nodes=tuple((node, _gpus_of(node, gpus)) for node in nodes.read_nodes(answers, wanted)),
        gpus=with_gpus,
        problems=tuple({**answers.problems, **of_gpus.problems}.items()),
    )


def _named(every: Sequence[Node], names: Sequence[str]) -> Sequence[Node]:
    """Return the nodes of these names, all without names; with or without their cluster."""
    if not names:
        return every
    known = {name for node in every for name in (str(node.key), node.key.name)}
    for name in names:
        if name not in known:
            there_are = some_names([str(node.key) for node in every])
            raise UnknownNameError(f"no node {printable(name)!r}; there are {there_are}")
    return [node for node in every if str(node.key) in names or node.key.name in names]


def _gpus_of(node: Node, gpus: Mapping[Target, tuple[Gpu, ...]] | None) -> tuple[Gpu, ...] | None:
    """Return the GPUs of a node; None if they are not known, or it has GPUs and none is reported."""
    if gpus is None or node.silent:
        return None
    return gpus.get(node.target) or (() if node.gpus.value == 0 else None)
