"""Counters and times over a restart of the exporter, read as Prometheus reads them: no jump, no false idling.

The same node is acted out twice with time set by hand: once under one exporter, once under two, one after
the other. What Prometheus adds up over the restart is never more than what really was added, and lacks only
what fell between the two.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from itertools import pairwise

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from exporter.config import load_settings
from exporter.demo.node import FakeNode
from exporter.demo.scenario import catalog
from exporter.exposition import Exposition, Format
from exporter.model.states import judge
from exporter.nvml.readings.device_reader import ENERGY_SECONDS
from exporter.poll.poller import Poller
from exporter.poll.sources import Sources
from tests.poller.bench import budget_of

pytestmark = pytest.mark.slow

BEGAN = 1_700_000_000.0
PERIOD, END = 5, 90
PATIENCE = 10.0
# The first exporter is gone after this poll, and the second begins with that one; as whole periods of reading
# energy lie between the beginnings, both read that of a GPU at the same times as one exporter does.
LAST, FIRST = 40, 60
LAST_ACTIVE = "gpuslice_container_last_active_timestamp_seconds"
OF_CONTAINERS = ("entitled_gpu_seconds", "used_gpu_seconds", "energy_joules")
# How long calls and polls took by the clock of the machine that runs this.
OF_A_PROCESS = re.compile("process_|python_|gpuslice_nvml_call_seconds")
Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


@asynccontextmanager
async def exporting(node: FakeNode) -> AsyncIterator[Poller]:
    """Run one exporter on a node, which keeps time for it; it lets the driver go at its end."""
    settings = replace(load_settings({}, {}), node_name=node.name, **asdict(node.paths))
    poller = Poller(
        settings,
        Sources(settings, node.nvml, clock=lambda: node.time, budget=budget_of(settings, 10.0)),
        clock=lambda: node.time,
        wall=lambda: BEGAN + node.time,
    )
    try:
        yield poller
    finally:
        await asyncio.wait_for(poller.close(), PATIENCE)


def read(page: str) -> Samples:
    """Read the counters of a page, and when containers were last active."""
    return {
        (sample.name, frozenset(sample.labels.items())): float(sample.value)
        for family in text_string_to_metric_families(page)
        if family.type == "counter" or family.name == LAST_ACTIVE
        for sample in family.samples
    }


class Told:
    """What Prometheus scraped: by time, the samples of the page after each poll."""

    def __init__(self) -> None:
        self.scrapes: dict[int, Samples] = {}
        self.states: dict[int, set[str]] = {}

    async def poll(self, node: FakeNode, poller: Poller, times: Iterable[int]) -> None:
        """Bring the node to each time, poll, and scrape."""
        exposition = Exposition()
        for time in times:
            await node.step(time)
            # What GPUs report comes through a thread of its own; the page has all of it.
            assert await asyncio.to_thread(node.nvml.events.settle, PATIENCE)
            snapshot = await poller.poll()
            page = exposition.page(snapshot).body(Format.OPENMETRICS).decode()
            self.scrapes[time] = read(page)
            now = BEGAN + time
            self.states[time] = {judge(row, now).state for row in snapshot.containers}

    def increase(self, key: tuple[str, frozenset[tuple[str, str]]]) -> float:
        """Add up as Prometheus does: a value below the one before stands for a counter that began at 0."""
        values = [samples[key] for samples in self.scrapes.values() if key in samples]
        return sum(new - old if new >= old else new for old, new in pairwise(values))


async def _acted_out(lives: Iterable[range]) -> Told:
    told = Told()
    async with FakeNode(catalog.load("t4-timeslicing"), clock=lambda: 0.0) as node:
        for times in lives:
            async with exporting(node) as poller:
                await told.poll(node, poller, times)
    return told


@pytest.fixture(scope="module")
def one() -> Told:
    """Let one exporter see all of it."""
    return asyncio.run(_acted_out([range(0, END + 1, PERIOD)]))


@pytest.fixture(scope="module")
def two() -> Told:
    """Let two see it, one after the other."""
    return asyncio.run(_acted_out([range(0, LAST + 1, PERIOD), range(FIRST, END + 1, PERIOD)]))


def _counters(told: Told, name: str) -> list[tuple[str, frozenset[tuple[str, str]]]]:
    found = {key for samples in told.scrapes.values() for key in samples if key[0] == name}
    return sorted(found, key=str)


@pytest.mark.parametrize("name", OF_CONTAINERS)
def test_a_restart_adds_nothing_and_loses_only_what_it_missed(one, two, name):
    """By ``increase`` a container gets no more over a restart than without, and no less but for the gap."""
    family = f"gpuslice_container_{name}_total"
    keys = _counters(one, family)
    assert keys == _counters(two, family)
    assert len(keys) >= 5
    for key in keys:
        whole, parts = one.increase(key), two.increase(key)
        before, after = one.scrapes[LAST].get(key, 0.0), one.scrapes[FIRST].get(key, 0.0)
        assert parts <= whole + 1e-6
        # The second exporter reads the energy when it begins, the one exporter up to a period later.
        read = FIRST + int(ENERGY_SECONDS) if name == "energy_joules" else FIRST
        most = one.scrapes[read].get(key, 0.0)
        tolerance = max(0.02 * (whole - (after - before)), 0.5)
        assert whole - (most - before) - tolerance <= parts <= whole - (after - before) + tolerance
    assert sum(map(one.increase, keys)) > 0


def test_no_counter_jumps_over_a_restart(one, two):
    """Of all that is counted on the page, the second exporter has no more than one that saw all of it."""
    last = max(two.scrapes)
    for key, value in two.scrapes[last].items():
        if key in one.scrapes[last] and not OF_A_PROCESS.match(key[0]):
            # What the node itself counts differs by its longer step while nobody looked.
            assert value <= one.scrapes[last][key] * 1.01 + 1e-6, key


def test_a_restart_makes_nobody_idle(one, two):
    """Times of last activity never go back, and nobody is called idle for the time before the restart."""
    assert _counters(one, LAST_ACTIVE) == _counters(two, LAST_ACTIVE)
    for key in _counters(two, LAST_ACTIVE):
        seen = [samples[key] for samples in two.scrapes.values() if key in samples]
        assert seen == sorted(seen)
        # What did not compute since is as old as the exporter, and never older than it was.
        assert two.scrapes[FIRST][key] >= one.scrapes[LAST][key]
        assert two.scrapes[FIRST][key] <= BEGAN + FIRST
    assert not two.states[FIRST] & {"idle", "idle-memory"}
    assert "quiet" in two.states[FIRST]


async def _beside() -> tuple[Told, Told]:
    first, second = Told(), Told()
    async with (
        FakeNode(catalog.load("sick-gpus"), clock=lambda: 0.0) as node,
        exporting(node) as one,
        exporting(node) as other,
    ):
        for time in range(0, LAST + 1, PERIOD):
            await asyncio.gather(first.poll(node, one, [time]), second.poll(node, other, [time]))
    return first, second


def test_two_on_one_driver_hear_and_count_the_same():
    """Of two exporters neither takes an event, a sample of use, or a joule from the other."""
    first, second = asyncio.run(_beside())
    for time, samples in first.scrapes.items():
        mine = {key: value for key, value in samples.items() if not OF_A_PROCESS.match(key[0])}
        assert {key: second.scrapes[time].get(key) for key in mine} == mine
    last = first.scrapes[LAST]
    assert any(value for (name, _), value in last.items() if "xid" in name)
    assert any(value for (name, _), value in last.items() if "used_gpu_seconds" in name)


def test_a_first_page_has_no_rate_of_its_own(two):
    """The page of the first poll counts nothing: what it would count fell before there was an exporter."""
    for name in OF_CONTAINERS:
        for start in (0, FIRST):
            for key in _counters(two, f"gpuslice_container_{name}_total"):
                assert two.scrapes[start].get(key, 0.0) == 0.0
