"""A poller over a fake node whose time is set by hand."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import pynvml

from exporter.config import Settings, load_settings
from exporter.demo.node import FakeNode
from exporter.demo.scenario import Scenario
from exporter.model import CollectorHealth, ContainerRow, Memory, Snapshot
from exporter.poll.budget import Budget
from exporter.poll.collector import Collector
from exporter.poll.poller import Poller
from exporter.poll.sources import Sources

DEFAULTS = load_settings({}, {})
# Intervals shorter than this are a test's way to many polls; their budget is not what it is about.
SHORTEST_INTERVAL = 2.0
QUICK_BUDGET = Budget(devices=10.0, dependents=20.0, join=30.0, call_timeout=5.0, request_timeout=7.5)
# Many polls in little time; answers become stale by the clock of the test only: ``make_stale``.
QUICK: dict[str, float] = {"poll_interval": 0.1, "stale_after": 600.0}
# The next poll is not due within a test: what is on the page before comes from an early one.
FAR: dict[str, float] = {"poll_interval": 600.0, "stale_after": 1800.0}
# Nothing that works takes this long, on whichever machine; for what hangs there is ``brief_waits``.
PATIENT_BUDGET = Budget(
    devices=100, dependents=200, join=300, call_timeout=100, request_timeout=90, gpu=100, card=100
)
BRIEF_SECONDS = 0.1


class Clock:
    """The monotonic clock and the wall clock, which a test can put forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        """Return seconds of the monotonic clock."""
        return time.monotonic() + self.ahead

    def wall(self) -> float:
        """Return the Unix time."""
        return time.time() + self.ahead


def settings_of(node: FakeNode, **changes: Any) -> Settings:
    """Return default settings, with changes, that lead to this node."""
    return replace(DEFAULTS, node_name=node.name, **asdict(node.paths), **changes)


def budget_of(settings: Settings, deadline: float | None = None) -> Budget:
    """Return the budget of a test's polls; with ``deadline`` each stage may take that many seconds."""
    usual = settings.poll_interval >= SHORTEST_INTERVAL
    budget = Budget.of_interval(settings.poll_interval) if usual else QUICK_BUDGET
    return budget if deadline is None else budget.patient(deadline)


@contextlib.asynccontextmanager
async def polled(
    scenario: Scenario, *, deadline: float | None = None, **changes: Any
) -> AsyncIterator[tuple[FakeNode, Poller]]:
    """Start a node that stands still at 0 s, and a poller for it that has not polled yet."""
    async with FakeNode(scenario, clock=lambda: 0.0) as node:
        settings = settings_of(node, **changes)
        budget = PATIENT_BUDGET if deadline is None else budget_of(settings, deadline)
        clock = Clock()
        async with closing(
            node,
            Poller(
                settings, Sources(settings, node.nvml, clock, budget=budget), clock=clock, wall=clock.wall
            ),
        ) as poller:
            yield node, poller


@contextlib.asynccontextmanager
async def polled_by_node_time(
    scenario: Scenario, *, began: float = 1_700_000_000.0, **changes: Any
) -> AsyncIterator[tuple[FakeNode, Poller]]:
    """Start a node that stands still at 0 s, and a poller whose clocks are that of the node."""
    async with FakeNode(scenario, clock=lambda: 0.0) as node:
        settings = settings_of(node, **changes)
        sources = Sources(settings, node.nvml, lambda: node.time, budget=PATIENT_BUDGET)
        poller = Poller(settings, sources, clock=lambda: node.time, wall=lambda: began + node.time)
        async with closing(node, poller):
            yield node, poller


@contextlib.asynccontextmanager
async def closing(node: FakeNode, poller: Poller) -> AsyncIterator[Poller]:
    """Close the poller at the end, and forget the driver's library."""
    try:
        yield poller
    finally:
        # Calls that hang return first, so that the worker is done with this driver.
        node.nvml.release()
        await poller.close()
        pynvml.nvmlLib = None
        pynvml._nvmlGetFunctionPointer_cache.clear()


@contextlib.contextmanager
def brief_waits(poller: Poller, *sources: str) -> Iterator[None]:
    """Let polls go on after a moment without these sources, which hang; all others keep their time."""
    with contextlib.ExitStack() as restored:
        for collector in collectors(poller):
            if collector.name in sources:
                collector.collect = partial(_collect_briefly, collector.collect)
                restored.callback(vars(collector).pop, "collect")
        yield


async def _collect_briefly(collect: Callable[[float], Awaitable[None]], _within: float) -> None:
    await collect(BRIEF_SECONDS)


def collectors(poller: Poller) -> tuple[Collector[Any], ...]:
    """Return the collectors of all sources."""
    return (*poller._devices._collectors(), poller._allocations, poller._names, *poller._later())


@contextlib.asynccontextmanager
async def running(poller: Poller) -> AsyncIterator[None]:
    """Let the poller poll at its interval."""
    task = asyncio.create_task(poller.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def make_stale(poller: Poller) -> None:
    """Let time pass until all that was read is stale."""
    clock = poller._clock
    assert isinstance(clock, Clock)
    clock.ahead += poller.settings.stale_after + 1


def health(snapshot: Snapshot, name: str) -> CollectorHealth:
    """Return the health of one source."""
    return next(collector for collector in snapshot.collectors if collector.name == name)


def failing(snapshot: Snapshot) -> set[str]:
    """Return the names of the sources that fail."""
    return {collector.name for collector in snapshot.collectors if not collector.success}


def holders(snapshot: Snapshot) -> set[str]:
    """Return the names of the pods that hold a slice."""
    return {row.holder.pod for row in snapshot.containers if row.slices}


def rows(snapshot: Snapshot, pod: str) -> list[ContainerRow]:
    """Return the rows of a pod."""
    return [row for row in snapshot.containers if row.holder.pod == pod]


def memories(snapshot: Snapshot) -> Iterator[tuple[tuple[str, str], Memory | None, int | None, bool]]:
    """Yield each device with its memory, the unattributed part, and whether several devices share it."""
    for gpu in snapshot.gpus:
        yield (gpu.identity.uuid, ""), gpu.reading and gpu.reading.memory, gpu.unattributed_memory, False
    for mig in snapshot.migs:
        yield mig.device, mig.reading.memory, mig.unattributed_memory, mig.reading.memory_shared
