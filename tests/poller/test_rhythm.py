"""The poller by itself: its rhythm, and a poll that fails as a whole."""

import asyncio
import logging
from itertools import pairwise

import pytest

from exporter.demo.scenario import catalog
from exporter.model import DriverInfo, HardwareReading
from exporter.poll.poller import Poller
from exporter.poll.sources import Sources
from tests.demo.making import made
from tests.poller.bench import QUICK, Clock, make_stale, polled, running, settings_of, until


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
async def test_polls_are_due_one_interval_after_another(early: int):
    """Neither the time that a poll takes nor an early poll moves the next one."""
    async with polled(made(), poll_interval=60.0) as (_, poller):
        clock = poller._clock
        poller._retry = due = Due(clock, early=early)

        async def poll() -> None:
            clock.ahead += 20

        poller._guarded_poll = poll
        async with running(poller):
            await until(lambda: len(due.times) >= early + 5)
        assert len(set(due.times[: early + 1])) == 1
        steps = [after - before for before, after in pairwise(due.times[early:])]
        assert steps == pytest.approx([60.0] * len(steps))


async def test_nothing_is_polled_after_the_end():
    """A poller that was stopped leaves its last snapshot and no task."""
    async with polled(made(), **QUICK) as (node, poller):
        async with running(poller):
            await until(lambda: poller.snapshot.sequence >= 1)
        last, calls = poller.snapshot, node.nvml.total_calls
        assert not [task for task in asyncio.all_tasks() if "Poller" in repr(task.get_coro())]
        assert poller.snapshot is last
        assert node.nvml.total_calls == calls


class BrokenReading:
    """A driver whose readings nothing can be made of; stands in for a fault in the join itself."""

    restart_reason = None
    latest = HardwareReading()

    async def read(self) -> HardwareReading:
        """Answer with what cannot be joined."""
        self.latest = HardwareReading(driver=DriverInfo(), gpus=(None,), gpu_count=1)
        return self.latest

    async def close(self) -> None:
        """Have nothing to close."""


async def test_a_poll_that_fails_as_a_whole(caplog: pytest.LogCaptureFixture):
    """It is logged with its cause, the page before it stays until it is stale, and then it is empty."""
    caplog.set_level(logging.ERROR)
    async with polled(catalog.load("a10-mps"), **QUICK) as (node, good):
        sources = Sources(settings_of(node, **QUICK))
        sources.nvml = BrokenReading()
        clock = Clock()
        poller = Poller(good.settings, sources, clock=clock, wall=clock.wall)
        poller.snapshot = await good.poll()
        await poller.first()
        assert poller.snapshot is good.snapshot
        assert caplog.records[0].exc_info is not None
        make_stale(poller)
        await poller.first()
        snapshot = poller.snapshot
        assert (snapshot.gpus, snapshot.migs, snapshot.containers) == ((), (), ())
        assert snapshot.timestamp == good.snapshot.timestamp
        # A reader that asks only for what is new is told that this is.
        assert snapshot.sequence != good.snapshot.sequence
        await poller.close()
