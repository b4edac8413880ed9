"""Recovery after a fault, and values that a fault must not take away."""

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
from tests.core.poller.bench import (
    FAR,
    QUICK,
    brief_waits,
    failing,
    holders,
    make_stale,
    polled,
    rows,
    running,
)
from tests.waiting import wait_until_async

FAULT, OVER = 10, 20
LOGS = "ml_nb-anna_0e7c12f0-5a1d-4c62-9d3e-0a6f3c1b2d11"


def entitled(snapshot) -> dict:
    """Return the GPU-seconds held, by container and device."""
    return {(row.holder, row.device): row.totals.entitled_gpu_seconds for row in snapshot.containers}


async def test_the_answer_of_a_kubelet_that_hung_is_on_the_page_before_the_next_poll_is_due(
    monkeypatch: pytest.MonkeyPatch,
):
    hang = KubeletFailure(kind="kubelet_hang", at=FAULT, for_=OVER - FAULT)
    scenario = replace(catalog.load("a10-mps"), faults=(hang,))
    async with polled(scenario, **FAR) as (node, poller):
        await poller.first()
        await node.step(FAULT)
        # Reads after the fault may take the usual time.
        with monkeypatch.context() as patched:
            patched.setattr(poller._sources.pod_resources, "_timeout", 0.1)
            patched.setattr(poller._sources.names._pods, "_timeout", 0.1)
            await poller.poll()
        assert failing(poller.snapshot) == {"podresources"}
        async with running(poller):
            await node.step(OVER)
            await wait_until_async(lambda: not failing(poller.snapshot))


async def test_a_subscriber_that_raises_keeps_snapshots_from_no_other_and_is_logged_once(caplog):
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
async def test_while_polls_fail_a_page_does_not_outlive_its_time_because_the_clock_was_set(jump: int):
    async with polled(catalog.load("a10-mps")) as (_, poller):
        shown = await poller.poll()
        assert shown.gpus

        poller._wall = lambda: shown.timestamp + jump
        poller._fail("poll failed: %r", OSError("no"))

        assert not poller.snapshot.gpus


@pytest.mark.parametrize(("code", "function"), [("GPU_IS_LOST", None), ("UNKNOWN", "nvmlDeviceGetMigMode")])
async def test_a_mig_gpu_that_fails_for_one_poll_keeps_its_holders_and_their_sums(code, function):
    scenario = catalog.load("a100-mig-mixed")
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
    assert {row.device for row in during.migs} == {row.device for row in before.migs}
    sums = [entitled(snapshot) for snapshot in (before, during, after)]
    assert all(a < b < c for a, b, c in zip(*(held.values() for held in sums), strict=True))


async def test_stale_readings_of_a_driver_that_hangs_take_no_holder_of_a_mig_device():
    hang = NvmlHang(kind="nvml_hang", at=FAULT)
    scenario = replace(catalog.load("mig-timeslicing"), faults=(hang,))
    async with polled(scenario, **QUICK) as (node, poller):
        before = await poller.poll()
        await node.step(FAULT)
        make_stale(poller)
        with brief_waits(poller, "nvml"):
            stale = await poller.poll()
        assert holders(stale) == holders(before)
        assert {row.memory_used for row in stale.containers} == {None}
        assert [gpu.reading.up for gpu in stale.gpus] == [False]


async def test_after_a_pods_api_that_hangs_pods_are_named_by_their_logs(tmp_path: Path):
    (tmp_path / LOGS).mkdir()
    path = tmp_path / "pods-api.sock"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        names = PodNames(path, tmp_path, timeout=0.1)
        assert [pod.name for pod in (await names.read()).values()] == ["nb-anna"]
        await names.close()


async def test_with_an_invalid_path_of_the_pods_api_pods_are_named_by_their_logs(tmp_path: Path):
    (tmp_path / LOGS).mkdir()
    names = PodNames(tmp_path / ("x" * 300) / "pods-api.sock", tmp_path, timeout=0.5)
    assert len(await names.read()) == 1
    await names.close()


def reading(sweep: int, up: bool = True) -> list[GpuReading]:
    """Return what a sweep read of the only GPU."""
    return [GpuReading(identity=GpuIdentity(uuid="GPU-a", index=0), sweep=sweep, up=up)]


def test_a_late_sweep_covers_the_time_since_the_one_before():
    coverage = Coverage()
    assert coverage.advance(reading(1), 0) == (0, {"GPU-a": 0})
    assert coverage.advance(reading(1), 5) == (5, {})
    assert coverage.advance(reading(2), 10) == (5, {"GPU-a": 10})


def test_after_a_sweep_that_failed_only_the_last_interval_is_covered():
    coverage = Coverage()
    coverage.advance(reading(1), 0)
    assert coverage.advance(reading(2, up=False), 5) == (5, {})
    assert coverage.advance(reading(3), 10) == (5, {"GPU-a": 5})


async def test_use_from_a_file_that_was_read_late_is_not_that_of_the_poll():
    """The limits in it are used, and the next poll has both again."""
    async with polled(catalog.load("hami")) as (node, poller):
        thread = poller._sources.files._worker
        hangs = threading.Event()
        shown = []
        for now in (0, 5, 10, 15):
            await node.step(now)
            if now == 5:
                hanging = asyncio.ensure_future(thread.run(hangs.wait))
                await asyncio.sleep(0)
            if now == 10:
                hangs.set()
                await hanging
                # The read of the poll before ends before this poll.
                await thread.run(lambda: None)
                await asyncio.wait({poller._files._task})
            with brief_waits(poller, *(["sharing"] if now == 5 else [])):
                (row,) = rows(await poller.poll(), "llm-0")
            shown.append((row.memory_source, row.memory_used is None, failing(poller.snapshot)))
        assert shown == [
            ("hami", False, set()),
            ("none", True, {"sharing"}),
            ("none", True, set()),
            ("hami", False, set()),
        ]
