"""A poller over a fake node whose time is set by hand."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import asdict, replace
from typing import Any

import pynvml

from exporter.config import Settings, load_settings
from exporter.demo.node import FakeNode
from exporter.demo.scenario import Scenario
from exporter.model import CollectorHealth, ContainerRow, Memory, Snapshot
from exporter.poll.budget import Budget
from exporter.poll.poller import Poller
from exporter.poll.sources import Sources
from tests.commands.program import seconds_of

DEFAULTS = load_settings({}, {})
# Intervals shorter than this are a test's way to many polls; their budget is not what it is about.
SHORTEST_INTERVAL = 2.0
QUICK_BUDGET = Budget(devices=2.0, dependents=4.0, join=6.0, call_timeout=1.0, request_timeout=1.5)
# Many polls in little time; what is left is the rhythm of 2 s at which a kubelet is asked again.
QUICK: dict[str, float] = {"poll_interval": 0.1, "stale_after": 0.5}


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
    """Start a node that stands still at 0 s and a poller for it that has not polled yet."""
    async with FakeNode(scenario, clock=lambda: 0.0) as node:
        settings = settings_of(node, **changes)
        poller = Poller(settings, Sources(settings, node.nvml, budget=budget_of(settings, deadline)))
        try:
            yield node, poller
        finally:
            # Calls that hang return first, so that the worker is done with this driver.
            node.nvml.release()
            await asyncio.wait_for(poller.close(), 10)
            pynvml.nvmlLib = None
            pynvml._nvmlGetFunctionPointer_cache.clear()


@contextlib.asynccontextmanager
async def running(poller: Poller) -> AsyncIterator[None]:
    """Let the poller run by itself."""
    task = asyncio.create_task(poller.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until(condition: Callable[[], bool], within: float) -> float:
    """Wait until something is so and return the seconds that it took; fails after ``within`` seconds.

    Time in which others have the processors does not count.
    """
    started = seconds_of(os.getpid())
    while not condition():
        assert seconds_of(os.getpid()) - started < within, "it did not come true in time"
        await asyncio.sleep(0.01)
    return seconds_of(os.getpid()) - started


def health(snapshot: Snapshot, name: str) -> CollectorHealth:
    """Return the health of one source."""
    return next(each for each in snapshot.collectors if each.name == name)


def failing(snapshot: Snapshot) -> set[str]:
    """Name the sources that fail."""
    return {each.name for each in snapshot.collectors if not each.success}


def holders(snapshot: Snapshot) -> set[str]:
    """Name the pods that hold a slice."""
    return {row.holder.pod for row in snapshot.containers if row.slices}


def rows(snapshot: Snapshot, pod: str) -> list[ContainerRow]:
    """Return the rows of a pod."""
    return [row for row in snapshot.containers if row.holder.pod == pod]


def memories(snapshot: Snapshot) -> Iterator[tuple[tuple[str, str], Memory | None, int | None, bool]]:
    """Yield each device with its memory, what of it is nobody's, and whether several devices share it."""
    for gpu in snapshot.gpus:
        yield (gpu.identity.uuid, ""), gpu.reading and gpu.reading.memory, gpu.unattributed_memory, False
    for mig in snapshot.migs:
        yield mig.device, mig.reading.memory, mig.unattributed_memory, mig.reading.memory_shared
