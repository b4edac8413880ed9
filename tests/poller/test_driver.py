"""A driver that hangs, is not there yet, or cuts its GPUs anew."""

import threading
from dataclasses import replace

import pytest
from aiohttp import ClientSession

from exporter.config import ListenAddress
from exporter.demo.scenario import NvmlError, NvmlHang, catalog
from exporter.model import SliceCount
from exporter.web import Server, make_app
from tests.demo.making import gpu, instance, made, pod
from tests.poller.bench import QUICK, failing, health, holders, make_stale, polled, rows, running, until
from tests.site import site_of

# Healthy reads must end within it also on a busy machine.
DEADLINE = 1.0


def readers() -> list[threading.Thread]:
    """Return the threads that read a driver."""
    return [thread for thread in threading.enumerate() if thread.name == "nvml"]


def hanging(device: int):
    """Return two GPUs held by a pod each; the calls about one of them hang from 10 s to 20 s."""
    pods = [pod(f"p{n}", {"memory": "1 GiB"}, devices={"nvidia.com/gpu": [f"{{gpu:{n}}}"]}) for n in range(2)]
    scenario = made(gpus=[gpu(count=2)], pods=pods, offers=[{"resource": "nvidia.com/gpu", "of": "gpus"}])
    hang = NvmlHang(kind="nvml_hang", at=10, for_=10, device=scenario.gpus[device].uuid)
    return replace(scenario, faults=(hang,))


@pytest.mark.slow
async def test_a_hang_in_one_gpu_ends_nothing():
    """Polls go on, what is stale leaves as unknown, no thread piles up, and all is back with the driver."""
    others = set(readers())
    async with polled(hanging(device=0), deadline=DEADLINE, **QUICK) as (node, poller):
        await poller.poll()
        assert {row.memory_used for row in poller.snapshot.containers} == {1 << 30}
        async with running(poller):
            await node.step(10)
            await until(lambda: failing(poller.snapshot) == {"nvml"})
            # The last readings are still young.
            assert {row.memory_used for row in poller.snapshot.containers} == {1 << 30}
            make_stale(poller)
            await until(lambda: not any(each.reading.up for each in poller.snapshot.gpus))
            await until(lambda: poller.snapshot.node.gpu_count is None)
            stale = poller.snapshot
            assert holders(stale) == {"p0", "p1"}
            assert {row.slices for row in stale.containers} == {1}
            assert {row.memory_used for row in stale.containers} == {None}
            assert {row.compute_used for row in stale.containers} == {None}
            assert {each.unattributed_memory for each in stale.gpus} == {None}
            assert (stale.node.gpu_count, stale.node.driver) == (None, None)
            assert set(health(stale, "nvml").errors) == {"deadline"}
            await until(lambda: poller.snapshot.sequence >= stale.sequence + 5)
            assert len(set(readers()) - others) == 1
            await node.step(20)
            await until(lambda: not failing(poller.snapshot))
        await poller.poll()
        assert {row.memory_used for row in poller.snapshot.containers} == {1 << 30}
        assert poller.snapshot.node.gpu_count == 2


async def test_what_was_read_before_the_hang_is_shown():
    """A GPU that is read before the one that hangs shows what it says now."""
    async with polled(hanging(device=1), deadline=DEADLINE, **QUICK) as (node, poller):
        before = await poller.poll()
        await node.step(10)
        after = await poller.poll()
        moved = [
            new.reading.read_at > old.reading.read_at
            for old, new in zip(before.gpus, after.gpus, strict=True)
        ]
        assert moved == [True, False]


async def test_the_page_answers_while_the_driver_hangs():
    """Nothing of the driver is asked in a request."""
    async with polled(hanging(device=0), deadline=DEADLINE, **QUICK) as (node, poller):
        await poller.poll()
        await node.step(10)
        site = site_of(lambda: poller.snapshot, lambda: poller.restart_reason)
        server = Server(make_app(site), ListenAddress("127.0.0.1", 0))
        url = await server.start()
        async with running(poller), ClientSession(url) as session:
            await until(lambda: "nvml" in failing(poller.snapshot))
            for path in ("/metrics", "/", "/api/v1/snapshot", "/-/healthy", "/-/ready"):
                async with session.get(path) as answer:
                    assert answer.status == 200
                    assert await answer.read()
        await server.stop()


async def test_a_driver_that_comes_later():
    """A node whose driver is not loaded yet is empty and alive; its GPUs appear when it is."""
    late = NvmlError(kind="nvml_error", for_=10, function="nvmlInitWithFlags", code="DRIVER_NOT_LOADED")
    scenario = replace(catalog.load("t4-timeslicing"), faults=(late,))
    async with polled(scenario, **QUICK) as (node, poller):
        snapshot = await poller.poll()
        assert failing(snapshot) == {"nvml"}
        assert health(snapshot, "nvml").errors == {"DriverNotLoaded": 1}
        assert "kernel module" in health(snapshot, "nvml").message
        assert (snapshot.gpus, snapshot.containers, snapshot.node.gpu_count) == ((), (), None)
        # Ids of GPUs that cannot be seen are not resolved; who holds them is known to hold something.
        assert snapshot.node.unresolved == {"nvidia.com/gpu": 15}
        assert poller.restart_reason is None
        await node.step(10)
        assert failing(await poller.poll()) == set()
        assert len(poller.snapshot.gpus) == 4
        assert poller.snapshot.node.unresolved == {}
        assert "infer-1" in holders(poller.snapshot)


async def test_a_driver_that_goes_and_comes_back():
    """Its GPUs are down as soon as it says so, with their holders; with the driver they are back."""
    gone = NvmlError(
        kind="nvml_error", at=10, for_=10, function="nvmlDeviceGetCount_v2", code="UNINITIALIZED"
    )
    scenario = replace(catalog.load("a10-mps"), faults=(gone,))
    async with polled(scenario, **QUICK) as (node, poller):
        await poller.poll()
        await node.step(10)
        assert [each.reading.up for each in (await poller.poll()).gpus] == [False]
        assert poller.snapshot.containers[0].memory_used is None
        assert poller.snapshot.containers[0].slices == 1
        assert (poller.snapshot.node.gpu_count, poller.snapshot.node.driver) == (None, None)
        await node.step(20)
        assert [each.reading.up for each in (await poller.poll()).gpus] == [True]
        assert poller.snapshot.containers[0].memory_used is not None


async def test_a_driver_that_was_upgraded_needs_a_restart():
    """The process says that only a restart helps, and why."""
    stuck = NvmlError(kind="nvml_error", function="nvmlInitWithFlags", code="LIB_RM_VERSION_MISMATCH")
    async with polled(replace(made(), faults=(stuck,)), **QUICK) as (_, poller):
        assert poller.restart_reason is None
        await poller.poll()
        assert "must be restarted" in poller.restart_reason


async def test_mig_devices_that_are_cut_anew():
    """Old devices leave with their holders at the next poll, new ones are there; lost ids are counted."""
    cuts = [instance(1, 0), instance(2, 1)]
    new = [instance(3, 2, profile="2g.4gb", memory_bytes="4 GiB", size=2)]
    held = pod("old", {"memory": "1 GiB"}, devices={"nvidia.com/gpu": ["{gpu:0/mig:0}"]})
    relayout = {"kind": "mig_layout", "at": 10, "gpu": 0, "instances": new}
    scenario = made(
        gpus=[gpu(mig={"instances": cuts})],
        pods=[held],
        offers=[{"resource": "nvidia.com/gpu", "of": "mig"}],
        faults=[relayout],
    )
    async with polled(scenario, **QUICK) as (node, poller):
        before = await poller.poll()
        assert [(mig.reading.gi, mig.reading.profile) for mig in before.migs] == [
            (1, "1g.2gb"),
            (2, "1g.2gb"),
        ]
        assert rows(before, "old")[0].memory_used == 1 << 30
        assert before.gpus[0].slices == (SliceCount("nvidia.com/gpu", 2, 1, 0, 0),)
        await node.step(10)
        after = await poller.poll()
        assert [(mig.reading.gi, mig.reading.profile) for mig in after.migs] == [(3, "2g.4gb")]
        assert {mig.device.mig_uuid for mig in after.migs}.isdisjoint(
            mig.device.mig_uuid for mig in before.migs
        )
        assert rows(after, "old") == []
        assert after.node.unresolved == {"nvidia.com/gpu": 1}
        assert failing(after) == set()
