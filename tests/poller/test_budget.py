"""A poll never takes longer than its interval, whatever hangs, and all is as before when that is over."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.demo.scenario import NvmlHang, catalog
from exporter.model import Snapshot
from exporter.poll.budget import Budget
from exporter.poll.collector import Collector
from exporter.poll.snapshot_builder import SnapshotBuilder
from exporter.poll.sources import Sources
from tests.faults.proc import hung
from tests.poller.bench import failing, polled, settings_of
from tests.waiting import wait_until_async

INTERVAL = 2.0
SCENARIO = "t4-timeslicing"
HANGING = {"nvml", "podresources", "processes"}


@contextlib.contextmanager
def hanging_files(proc: Path) -> Iterator[None]:
    """Have whoever reads the stat of a process wait until this is over."""
    with contextlib.ExitStack() as stack:
        for stat in proc.glob("[0-9]*/stat"):
            stack.enter_context(hung(stat))
        yield


@contextlib.contextmanager
def hanging_join(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have the join wait in its thread until this is over."""
    over, real = threading.Event(), SnapshotBuilder.snapshot

    def late(builder: SnapshotBuilder, *arguments: object) -> Snapshot:
        over.wait()
        return real(builder, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(SnapshotBuilder, "snapshot", late)
        try:
            yield
        finally:
            over.set()


@pytest.mark.slow
async def test_driver_kubelet_files_and_join_hang_at_once(monkeypatch: pytest.MonkeyPatch):
    """Polls end though nothing else does, the page stays and says what fails, and then all is well again."""
    hang = NvmlHang(kind="nvml_hang", at=10, for_=100)
    scenario = replace(catalog.load(SCENARIO), faults=(hang,))
    async with polled(scenario, poll_interval=INTERVAL) as (node, poller):
        before = await poller.poll()
        over = asyncio.Event()

        async def wait(_method: str, _context: object) -> None:
            await over.wait()

        real, node.kubelet._misbehave = node.kubelet._misbehave, wait
        await node.step(10)
        with hanging_files(poller.settings.proc_root):
            for _ in range(2):
                await poller._guarded_poll()
            assert failing(poller.snapshot) >= HANGING
            assert {gpu.identity.uuid for gpu in poller.snapshot.gpus} == {
                gpu.identity.uuid for gpu in before.gpus
            }
            shown = poller.snapshot.sequence
            with hanging_join(monkeypatch):
                for _ in range(3):
                    await poller._guarded_poll()
                assert poller.snapshot.sequence == shown

        over.set()
        node.kubelet._misbehave = real
        node.nvml.release()
        await node.step(110)
        for _ in range(4):
            await poller.poll()
        assert failing(poller.snapshot) == set()
        assert poller.snapshot.sequence > shown


@pytest.mark.slow
async def test_a_join_that_is_late_is_shown_by_the_next_poll(monkeypatch: pytest.MonkeyPatch):
    """Its snapshot is newer than what is shown, and one join at a time runs in the thread."""
    async with polled(catalog.load(SCENARIO), poll_interval=INTERVAL) as (_, poller):
        first = await poller.poll()
        with hanging_join(monkeypatch):
            await poller._guarded_poll()
            assert poller.snapshot is first
        later = await poller.poll()
        assert later.sequence == first.sequence + 2


@pytest.mark.parametrize("interval", [0.1, 1.0, 5.0, 60.0, 3600.0])
def test_the_stages_of_a_poll_end_one_after_the_other(interval: float):
    """The last ends with the interval, and a client gives up before the stage that waits for it ends."""
    budget = Budget.of_interval(interval)

    assert 0 < budget.head_start < budget.request_timeout < budget.devices < budget.dependents < budget.join
    assert budget.join == max(interval, 1.0)


def test_what_a_stage_leaves_is_there_for_the_next():
    """What is left counts from the start of the poll, whichever stage has taken it, and is never negative."""
    now = [100.0]
    left = Budget.of_interval(10.0).start(lambda: now[0])

    assert left(7.5) == 7.5
    now[0] += 8
    assert (left(9.0), left(7.5)) == (1.0, 0.0)


async def test_the_daemon_polls_by_the_budget_of_its_interval():
    """Sources made of settings alone have it; nothing else says how long a source may take."""
    async with polled(catalog.load(SCENARIO)) as (node, _):
        settings = settings_of(node, poll_interval=7.0)
        sources = Sources(settings, node.nvml)
        assert sources.budget == Budget.of_interval(7.0)
        await sources.close()


async def test_a_source_that_is_always_late_has_not_recovered(caplog: pytest.LogCaptureFixture):
    """Its answers count, and its failure is logged once."""
    caplog.set_level("INFO")

    go_on = asyncio.Event()

    async def slow() -> int:
        await go_on.wait()
        return 1

    collector = Collector("slow", slow)
    for _ in range(3):
        go_on.clear()
        await collector.collect(0.01)
        go_on.set()
        await wait_until_async(collector._task.done)
        await collector.collect(0.01)
        assert collector.value == 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]
