"""The poller by itself: its rhythm, and a poll that fails as a whole."""

import asyncio
import logging
import time

import pytest

from exporter.demo.scenario import catalog
from exporter.model import DriverInfo, HardwareReading
from exporter.poll.poller import Poller
from exporter.poll.sources import Sources
from tests.demo.making import made
from tests.poller.bench import QUICK, polled, running, settings_of, until


@pytest.mark.slow
async def test_polls_keep_their_interval():
    """Polls follow each other at the interval, however long a poll takes."""
    async with polled(made(), **QUICK) as (_, poller):
        await poller.first()
        async with running(poller):
            await until(lambda: poller.snapshot.sequence >= 3, within=5)
            began, sequence = time.monotonic(), poller.snapshot.sequence
            await asyncio.sleep(1)
            polls = (poller.snapshot.sequence - sequence) / (time.monotonic() - began)
            assert 5 <= polls <= 11


async def test_nothing_is_polled_after_the_end():
    """A poller that was stopped leaves its last snapshot and no task."""
    async with polled(made(), **QUICK) as (node, poller):
        async with running(poller):
            await until(lambda: poller.snapshot.sequence >= 1, within=5)
        last, calls = poller.snapshot, node.nvml.total_calls
        await asyncio.sleep(3 * QUICK["poll_interval"])
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


@pytest.mark.slow
async def test_a_poll_that_fails_as_a_whole(caplog: pytest.LogCaptureFixture):
    """It is logged with its cause, the page before it stays until it is stale, and then it is empty."""
    caplog.set_level(logging.ERROR)
    async with polled(catalog.load("a10-mps"), **QUICK) as (node, good):
        sources = Sources(settings_of(node, **QUICK))
        sources.nvml = BrokenReading()
        poller = Poller(good.settings, sources)
        poller.snapshot = await good.poll()
        await poller.first()
        assert poller.snapshot is good.snapshot
        assert caplog.records[0].exc_info is not None
        await asyncio.sleep(QUICK["stale_after"] + 0.05)
        await poller.first()
        snapshot = poller.snapshot
        assert (snapshot.gpus, snapshot.migs, snapshot.containers) == ((), (), ())
        assert snapshot.timestamp == good.snapshot.timestamp
        # A reader that asks only for what is new is told that this is.
        assert snapshot.sequence != good.snapshot.sequence
        await poller.close()
