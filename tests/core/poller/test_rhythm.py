"""When polls are due, and a poll that fails as a whole."""

import asyncio
import logging
from itertools import pairwise

import pytest

from exporter.demo.scenario import catalog
from exporter.model import DriverInfo, HardwareReading
from tests.core.poller.bench import QUICK, Clock, make_stale, polled, running
from tests.fake.demo.making import made
from tests.waiting import wait_until_async


class Due:
    """Stands in for the wait between polls: notes when each poll is due, and moves the clock there."""

    def __init__(self, clock: Clock, *, early: int) -> None:
        self.times: list[float] = []
        self._clock = clock
        self._early = early

    async def wait(self, _wake: asyncio.Event, due: float) -> bool:
        """Return True for the first waits, as if something had asked for an early poll."""
        self.times.append(due)
        if len(self.times) <= self._early:
            return True
        self._clock.ahead += max(due - self._clock(), 0)
        await asyncio.sleep(0)
        return False

    def close(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize("early", [0, 2])
async def test_neither_the_length_of_a_poll_nor_an_early_poll_moves_the_next_one(early: int):
    async with polled(made(), poll_interval=60.0) as (_, poller):
        clock = poller._clock
        poller._retry = due = Due(clock, early=early)

        async def poll() -> None:
            clock.ahead += 20

        poller._guarded_poll = poll
        async with running(poller):
            await wait_until_async(lambda: len(due.times) >= early + 5)
        assert len(set(due.times[: early + 1])) == 1
        steps = [after - before for before, after in pairwise(due.times[early:])]
        assert steps == pytest.approx([60.0] * len(steps))


async def test_a_stopped_poller_leaves_its_last_snapshot_and_no_task():
    async with polled(made(), **QUICK) as (node, poller):
        async with running(poller):
            await wait_until_async(lambda: poller.snapshot.sequence >= 1)
        last, calls = poller.snapshot, node.nvml.total_calls
        assert not [task for task in asyncio.all_tasks() if "Poller" in repr(task.get_coro())]
        assert poller.snapshot is last
        assert node.nvml.total_calls == calls


async def test_a_poll_that_fails_as_a_whole_is_logged_and_the_page_stays_until_it_is_stale(
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.ERROR)
    async with polled(catalog.load("a10-mps"), **QUICK) as (_, poller):
        good = await poller.poll()
        # Stands in for a fault in the join.
        poller._sources.nvml._latest = HardwareReading(driver=DriverInfo(), gpus=(None,), gpu_count=1)
        poller._devices._nvml.collect = lambda _within: asyncio.sleep(0)
        await poller.first()
        assert poller.snapshot is good
        assert caplog.records[0].exc_info is not None
        make_stale(poller)
        await poller.first()
        empty = poller.snapshot
        assert (empty.gpus, empty.migs, empty.containers) == ((), (), ())
        assert empty.timestamp == good.timestamp
