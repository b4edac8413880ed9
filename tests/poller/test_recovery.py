"""What comes back after a fault, how soon, and what was never lost meanwhile."""

import asyncio
import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.demo.scenario import KubeletFailure, NvmlError, NvmlHang, catalog
from exporter.model import GpuIdentity, GpuReading
from exporter.poll.accounting import Coverage
from exporter.poll.pod_names import PodNames
from tests.poller.bench import QUICK, failing, holders, make_stale, polled, rows, running, until

FAULT, OVER = 10, 20


def entitled(snapshot) -> dict:
    """Return the GPU-seconds held, by container and device."""
    return {(row.holder, row.device): row.totals.entitled_gpu_seconds for row in snapshot.containers}


async def test_a_kubelet_that_hung_is_noticed_before_the_next_poll_is_due():
    """While it hangs, the devices are read as before; its next answer is on the page at once."""
    hang = KubeletFailure(kind="kubelet_hang", at=FAULT, for_=OVER - FAULT)
    scenario = replace(catalog.load("a10-mps"), faults=(hang,))
    async with polled(scenario, poll_interval=600.0, stale_after=1800.0) as (node, poller):
        poller._sources.pod_resources._timeout = 0.2
        await poller.first()
        await node.step(FAULT)
        await poller.poll()
        assert failing(poller.snapshot) == {"podresources"}
        async with running(poller):
            await node.step(OVER)
            await until(lambda: not failing(poller.snapshot))


async def test_a_reader_that_fails_keeps_snapshots_from_nobody_and_is_named_once(caplog):
    """The readers after it are told of each poll, and the log of the first failure of several."""
    seen: list[int] = []
    fails = iter((True, True, False, True))

    def bad(_snapshot) -> None:
        if next(fails):
            raise ValueError("no")

    async with polled(catalog.load("a10-mps")) as (_, poller):
        poller.subscribe(bad)
        poller.subscribe(lambda snapshot: seen.append(snapshot.sequence))
        for _ in range(4):
            await poller.poll()
    assert seen == [1, 2, 3, 4]
    assert caplog.text.count("ValueError: no") == 2


@pytest.mark.parametrize("jump", [3600, -3600])
async def test_what_is_old_by_the_clock_goes_whichever_way_the_clock_was_set(jump: int):
    """While polls fail, a page does not outlive its time because the clock went back."""
    async with polled(catalog.load("a10-mps")) as (_, poller):
        shown = await poller.poll()
        assert shown.gpus

        poller._wall = lambda: shown.timestamp + jump
        poller._fail("poll failed: %r", OSError("no"))

        assert not poller.snapshot.gpus


async def test_a_mig_gpu_that_fails_for_one_poll_keeps_its_holders_and_their_sums():
    """Its MIG devices are still held: no holder is gone, no counter begins anew, nothing is unresolved."""
    scenario = catalog.load("a100-mig-mixed")
    for code, function in (("GPU_IS_LOST", None), ("UNKNOWN", "nvmlDeviceGetMigMode")):
        fault = NvmlError(
            kind="nvml_error", at=FAULT, for_=5, device=scenario.gpus[0].uuid, code=code, function=function
        )
        async with polled(replace(scenario, faults=(fault,)), **QUICK) as (node, poller):
            await poller.poll()
            before = await poller.poll()
            await node.step(FAULT)
            during = await poller.poll()
            await node.step(OVER)
            after = await poller.poll()
        assert holders(during) == holders(before)
        assert [gpu.holders for gpu in during.gpus] == [gpu.holders for gpu in before.gpus]
        assert during.node.unresolved == {}
        assert {row.mig_uuid for row in (m.device for m in during.migs)} == {
            m.device.mig_uuid for m in before.migs
        }
        sums = [entitled(snapshot) for snapshot in (before, during, after)]
        assert all(a < b < c for a, b, c in zip(*(s.values() for s in sums), strict=True))


async def test_a_driver_that_hangs_for_long_takes_no_holder_of_a_mig_device():
    """When readings have become stale, the kubelet's word on who holds what still stands."""
    hang = NvmlHang(kind="nvml_hang", at=FAULT)
    scenario = replace(catalog.load("mig-timeslicing"), faults=(hang,))
    async with polled(scenario, deadline=1.5, **QUICK) as (node, poller):
        before = await poller.poll()
        await node.step(FAULT)
        make_stale(poller)
        stale = await poller.poll()
        assert holders(stale) == holders(before)
        assert {row.memory_used for row in stale.containers} == {None}
        assert [gpu.reading.up for gpu in stale.gpus] == [False]


async def test_a_pods_api_that_hangs_leaves_time_for_the_pod_logs(tmp_path: Path):
    """The second rung of the ladder is reached within the timeout of the first."""
    logs = tmp_path / "pods"
    (logs / "ml_nb-anna_0e7c12f0-5a1d-4c62-9d3e-0a6f3c1b2d11").mkdir(parents=True)
    path = tmp_path / "pods-api.sock"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        names = PodNames(path, logs, timeout=0.5)
        found = await names.read()
        await names.close()
    assert [pod.name for pod in found.values()] == ["nb-anna"]


async def test_a_pods_api_that_cannot_be_looked_at_leaves_the_pod_logs(tmp_path: Path):
    """A path through something that is no directory is an objection, not the end of the ladder."""
    (tmp_path / "file").write_text("")
    (tmp_path / "ml_nb-anna_0e7c12f0-5a1d-4c62-9d3e-0a6f3c1b2d11").mkdir()
    names = PodNames(tmp_path / ("x" * 300) / "pods-api.sock", tmp_path, timeout=0.5)
    assert len(await names.read()) == 1
    await names.close()


def reading(sweep: int, up: bool = True) -> list[GpuReading]:
    """Return what a sweep read of the only GPU."""
    return [GpuReading(identity=GpuIdentity(uuid="GPU-a", index=0), sweep=sweep, up=up)]


def test_a_late_sweep_covers_the_time_since_the_one_before():
    """A slow driver's readings are averages over all that time: none of it is lost."""
    coverage = Coverage()
    assert coverage.advance(reading(1), 0) == (0, {"GPU-a": 0})
    assert coverage.advance(reading(1), 5) == (5, {})
    assert coverage.advance(reading(2), 10) == (5, {"GPU-a": 10})


def test_after_a_sweep_that_failed_only_the_last_interval_is_covered():
    """Nobody knows what was computed in a poll that was missed."""
    coverage = Coverage()
    coverage.advance(reading(1), 0)
    assert coverage.advance(reading(2, up=False), 5) == (5, {})
    assert coverage.advance(reading(3), 10) == (5, {"GPU-a": 5})


async def test_what_a_file_says_late_is_not_used_as_of_now() -> None:
    """Use that was asked for in an earlier poll is left out, as while it hangs; the next has it anew."""
    async with polled(catalog.load("hami"), deadline=1.5) as (node, poller):
        thread = poller._sources.files._worker
        hangs = threading.Event()
        told = []
        for now in (0, 5, 10, 15):
            await node.step(now)
            if now == 5:
                hanging = asyncio.ensure_future(thread.run(hangs.wait))
                await asyncio.sleep(0)
            if now == 10:
                hangs.set()
                await hanging
                # The read that was left behind comes to its end before the poll.
                await thread.run(lambda: None)
                await asyncio.sleep(0.01)
            (row,) = rows(await poller.poll(), "llm-0")
            told.append((row.memory_source, row.memory_used is None, failing(poller.snapshot)))
        assert told == [
            ("hami", False, set()),
            ("none", True, {"sharing"}),
            ("none", True, set()),
            ("hami", False, set()),
        ]
