"""Counters and times over a restart of the exporter, as Prometheus reads them: no jump, no false idleness.

The same node runs twice, with its time set by hand: with one exporter, and with two, one after the other. An
increase over the restart is never more than the real one, and lacks only the time between the two.
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
from exporter.model.states import judge_holder
from exporter.nvml.readings.device_reader import ENERGY_SECONDS
from exporter.poll.poller import Poller
from exporter.poll.sources import Sources
from tests.core.poller.bench import budget_of
from tests.waiting import LIMIT_SECONDS

BEGAN = 1_700_000_000.0
PERIOD, END = 5, 90
# The last poll of the first exporter, and the first of the second: a multiple of the period of energy, which
# is then read at the same times as by a single exporter.
LAST, FIRST = 40, 60
LAST_ACTIVE = "gpuslice_container_last_active_timestamp_seconds"
OF_CONTAINERS = ("entitled_gpu_seconds", "used_gpu_seconds", "energy_joules")
# Series of the process, and times by the clock of this machine.
OF_A_PROCESS = re.compile("process_|python_|gpuslice_nvml_call_seconds")
Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


@asynccontextmanager
async def exporting(node: FakeNode) -> AsyncIterator[Poller]:
    """Run an exporter with the clock of the node; at the end it closes the driver."""
    settings = replace(load_settings({}, {}), node_name=node.name, **asdict(node.paths))
    poller = Poller(
        settings,
        Sources(settings, node.nvml, clock=lambda: node.time, budget=budget_of(settings, LIMIT_SECONDS)),
        clock=lambda: node.time,
        wall=lambda: BEGAN + node.time,
    )
    try:
        yield poller
    finally:
        await poller.close()


def read(page: str) -> Samples:
    """Return the counters of a page, and the times of last activity."""
    return {
        (sample.name, frozenset(sample.labels.items())): float(sample.value)
        for family in text_string_to_metric_families(page)
        if family.type == "counter" or family.name == LAST_ACTIVE
        for sample in family.samples
    }


class Scraped:
    """The samples of the page after each poll, and the states of containers, by time."""

    def __init__(self) -> None:
        self.scrapes: dict[int, Samples] = {}
        self.states: dict[int, set[str]] = {}

    async def poll(self, node: FakeNode, poller: Poller, times: Iterable[int]) -> None:
        """Set each time, poll, and scrape."""
        exposition = Exposition()
        for time in times:
            await node.step(time)
            # Events come through a thread of their own.
            assert await asyncio.to_thread(node.nvml.events.settle, LIMIT_SECONDS)
            snapshot = await poller.poll()
            page = exposition.page(snapshot).body(Format.OPENMETRICS).decode()
            self.scrapes[time] = read(page)
            now = BEGAN + time
            self.states[time] = {judge_holder(row, now).state for row in snapshot.containers}

    def increase(self, key: tuple[str, frozenset[tuple[str, str]]]) -> float:
        """Return the increase as Prometheus adds it up: a value below the last one is of a counter from 0."""
        values = [samples[key] for samples in self.scrapes.values() if key in samples]
        return sum(new - old if new >= old else new for old, new in pairwise(values))


async def _scraped(lives: Iterable[range]) -> Scraped:
    scraped = Scraped()
    async with FakeNode(catalog.load("t4-timeslicing"), clock=lambda: 0.0) as node:
        for times in lives:
            async with exporting(node) as poller:
                await scraped.poll(node, poller, times)
    return scraped


@pytest.fixture(scope="module")
def one() -> Scraped:
    """Run one exporter all the time."""
    return asyncio.run(_scraped([range(0, END + 1, PERIOD)]))


@pytest.fixture(scope="module")
def two() -> Scraped:
    """Run two, one after the other."""
    return asyncio.run(_scraped([range(0, LAST + 1, PERIOD), range(FIRST, END + 1, PERIOD)]))


def _counters(scraped: Scraped, name: str) -> list[tuple[str, frozenset[tuple[str, str]]]]:
    return sorted({key for samples in scraped.scrapes.values() for key in samples if key[0] == name}, key=str)


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_CONTAINERS)
def test_a_restart_adds_nothing_and_loses_only_what_it_missed(one, two, name):
    family = f"gpuslice_container_{name}_total"
    keys = _counters(one, family)
    assert keys == _counters(two, family)
    assert len(keys) >= 5
    for key in keys:
        whole, parts = one.increase(key), two.increase(key)
        before, after = one.scrapes[LAST].get(key, 0.0), one.scrapes[FIRST].get(key, 0.0)
        assert parts <= whole + 1e-6
        # The second exporter reads the energy at its start, the single one up to a period later.
        read = FIRST + int(ENERGY_SECONDS) if name == "energy_joules" else FIRST
        most = one.scrapes[read].get(key, 0.0)
        tolerance = max(0.02 * (whole - (after - before)), 0.5)
        assert whole - (most - before) - tolerance <= parts <= whole - (after - before) + tolerance
    assert sum(map(one.increase, keys)) > 0


@pytest.mark.slow
def test_no_counter_jumps_over_a_restart(one, two):
    """No counter of the second exporter is above that of the single one."""
    last = max(two.scrapes)
    for key, value in two.scrapes[last].items():
        if key in one.scrapes[last] and not OF_A_PROCESS.match(key[0]):
            # Counters of the node itself differ by its longer step between the two.
            assert value <= one.scrapes[last][key] * 1.01 + 1e-6, key


@pytest.mark.slow
def test_a_restart_makes_no_container_idle(one, two):
    """Times of last activity never go back."""
    assert _counters(one, LAST_ACTIVE) == _counters(two, LAST_ACTIVE)
    for key in _counters(two, LAST_ACTIVE):
        seen = [samples[key] for samples in two.scrapes.values() if key in samples]
        assert seen == sorted(seen)
        # Without activity since the start, it is the time of the start.
        assert two.scrapes[FIRST][key] >= one.scrapes[LAST][key]
        assert two.scrapes[FIRST][key] <= BEGAN + FIRST
    assert not two.states[FIRST] & {"idle", "idle-memory"}
    assert "quiet" in two.states[FIRST]


async def _at_once() -> tuple[Scraped, Scraped]:
    first, second = Scraped(), Scraped()
    async with (
        FakeNode(catalog.load("sick-gpus"), clock=lambda: 0.0) as node,
        exporting(node) as one,
        exporting(node) as other,
    ):
        for time in range(0, LAST + 1, PERIOD):
            await asyncio.gather(first.poll(node, one, [time]), second.poll(node, other, [time]))
    return first, second


@pytest.mark.slow
def test_two_on_one_driver_count_the_same():
    """Neither takes an event, a sample of utilization or a joule from the other."""
    first, second = asyncio.run(_at_once())
    for time, samples in first.scrapes.items():
        mine = {key: value for key, value in samples.items() if not OF_A_PROCESS.match(key[0])}
        assert {key: second.scrapes[time].get(key) for key in mine} == mine
    last = first.scrapes[LAST]
    assert any(value for (name, _), value in last.items() if "xid" in name)
    assert any(value for (name, _), value in last.items() if "used_gpu_seconds" in name)


@pytest.mark.slow
def test_the_first_page_counts_nothing(two):
    for name in OF_CONTAINERS:
        for start in (0, FIRST):
            for key in _counters(two, f"gpuslice_container_{name}_total"):
                assert two.scrapes[start].get(key, 0.0) == 0.0
