"""A poll ends whatever hangs, and everything is as before when that is over."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.demo.scenario import NvmlHang, catalog
from exporter.model import Allocations, Snapshot
from exporter.poll.budget import Budget
from exporter.poll.collector import Collector
from exporter.poll.poller import Poller
from exporter.poll.snapshot_builder import SnapshotBuilder
from exporter.poll.sources import Sources
from tests.core.poller.bench import brief_waits, collectors, failing, polled, settings_of
from tests.together.faults.proc import hung
from tests.waiting import wait_until_async

SCENARIO = "t4-timeslicing"


@contextlib.contextmanager
def hanging_files(proc: Path) -> Iterator[None]:
    """Let readers of the stat of a process wait until this is over."""
    with contextlib.ExitStack() as stack:
        for stat in proc.glob("[0-9]*/stat"):
            stack.enter_context(hung(stat))
        yield


@contextlib.contextmanager
def hanging_join(poller: Poller, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the join wait in its thread until this is over; polls have no time for it."""
    over, real = threading.Event(), SnapshotBuilder.snapshot

    def late(builder: SnapshotBuilder, *arguments: object) -> Snapshot:
        over.wait()
        return real(builder, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(SnapshotBuilder, "snapshot", late)
        patch.setattr(poller, "_budget", poller._budget._replace(join=0.0))
        try:
            yield
        finally:
            over.set()


async def test_driver_kubelet_files_and_join_hang_at_once(monkeypatch: pytest.MonkeyPatch):
    """Polls end, the page stays and names what fails, and everything works again afterwards."""
    hang = NvmlHang(kind="nvml_hang", at=10, for_=100)
    async with polled(replace(catalog.load(SCENARIO), faults=(hang,))) as (node, poller):
        before = await poller.poll()
        over = asyncio.Event()

        async def wait(_method: str, _context: object) -> None:
            await over.wait()

        real, node.kubelet._misbehave = node.kubelet._misbehave, wait
        await node.step(10)
        hanging = {"nvml", "podresources", "identity", "processes"}
        with hanging_files(poller.settings.proc_root), brief_waits(poller, *hanging):
            for _ in range(2):
                await poller._guarded_poll()
            shown = poller.snapshot
            assert failing(shown) >= hanging
            assert {gpu.identity for gpu in shown.gpus} == {gpu.identity for gpu in before.gpus}
            with hanging_join(poller, monkeypatch):
                for _ in range(3):
                    await poller._guarded_poll()
                assert poller.snapshot is shown

        over.set()
        node.kubelet._misbehave = real
        node.nvml.release()
        await node.step(110)
        for _ in range(4):
            await poller.poll()
        assert failing(poller.snapshot) == set()
        assert poller.snapshot.sequence > shown.sequence


async def test_a_late_join_is_shown_by_the_next_poll(monkeypatch: pytest.MonkeyPatch):
    async with polled(catalog.load(SCENARIO)) as (_, poller):
        first = await poller.poll()
        with hanging_join(poller, monkeypatch):
            await poller._guarded_poll()
            assert poller.snapshot is first
        later = await poller.poll()
        # One join at a time runs in the thread, and none is dropped.
        assert later.sequence == first.sequence + 2


async def test_the_kubelet_is_read_while_the_driver_hangs():
    async with polled(catalog.load(SCENARIO)) as (_, poller):
        collect, listed = poller._devices.collect, asyncio.Event()
        read = poller._allocations._read

        async def devices_after_kubelet(within: float) -> None:
            await listed.wait()
            await collect(within)

        async def kubelet() -> Allocations:
            listed.set()
            return await read()

        poller._devices.collect, poller._allocations._read = devices_after_kubelet, kubelet
        polling = asyncio.ensure_future(poller.poll())
        await wait_until_async(listed.is_set)
        assert failing(await polling) == set()


async def test_each_source_has_the_time_that_is_left_of_its_stage():
    async with polled(catalog.load(SCENARIO)) as (_, poller):
        budget = poller._budget = Budget.of_interval(60.0)
        limits: dict[str, float] = {}

        for collector in collectors(poller):
            real = collector.collect

            async def collect(within: float, name: str = collector.name, real=real) -> None:
                limits[name] = within
                await real(100)

            collector.collect = collect
        await poller.poll()
        devices = {"nvml", "amd", "podresources", "identity"}
        assert devices < limits.keys()
        for name, within in limits.items():
            assert within <= (budget.devices if name in devices else budget.dependents), name


@pytest.mark.parametrize("interval", [0.1, 1.0, 5.0, 60.0, 3600.0])
def test_the_stages_of_a_poll_end_one_after_the_other_and_the_last_with_the_interval(interval: float):
    budget = Budget.of_interval(interval)

    assert 0 < budget.head_start < budget.request_timeout < budget.devices < budget.dependents < budget.join
    assert budget.join == max(interval, 1.0)


def test_time_that_a_stage_leaves_is_there_for_the_next():
    """It counts from the start of the poll, and is never negative."""
    now = [100.0]
    left = Budget.of_interval(10.0).start(lambda: now[0])

    assert left(7.5) == 7.5
    now[0] += 8
    assert (left(9.0), left(7.5)) == (1.0, 0.0)


async def test_the_budget_of_the_sources_is_that_of_the_interval():
    async with polled(catalog.load(SCENARIO)) as (node, _):
        sources = Sources(settings_of(node, poll_interval=7.0), node.nvml)
        assert sources.budget == Budget.of_interval(7.0)
        await sources.close()


async def test_a_source_that_is_always_late_has_not_recovered(caplog: pytest.LogCaptureFixture):
    """Its answers count, and its failure is logged once."""
    caplog.set_level("INFO")
    go_on = asyncio.Event()
    collector = Collector("slow", go_on.wait)
    for _ in range(3):
        go_on.clear()
        await collector.collect(0.01)
        go_on.set()
        await wait_until_async(collector._task.done)
        await collector.collect(0.01)
        assert collector.value is True
    assert [record.levelname for record in caplog.records] == ["WARNING"]
