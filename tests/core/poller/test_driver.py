"""A driver that hangs, comes later, goes away, or partitions its GPUs again."""

import threading
from dataclasses import replace

from aiohttp import ClientSession

from exporter.config import ListenAddress
from exporter.demo.scenario import NvmlError, NvmlHang, catalog
from exporter.model import SliceCount
from exporter.web.kit.http.server import Server
from exporter.web.node.app import make_app
from tests.core.poller.bench import (
    QUICK,
    brief_waits,
    failing,
    health,
    holders,
    make_stale,
    polled,
    rows,
    running,
)
from tests.fake.demo.making import gpu, instance, made, pod
from tests.site import site_of
from tests.waiting import wait_until_async


def readers() -> list[threading.Thread]:
    """Return the threads that read a driver."""
    return [thread for thread in threading.enumerate() if thread.name == "nvml"]


def hanging(device: int):
    """Return two GPUs held by a pod each; the calls about one of them hang from 10 s to 20 s."""
    pods = [pod(f"p{n}", {"memory": "1 GiB"}, devices={"nvidia.com/gpu": [f"{{gpu:{n}}}"]}) for n in range(2)]
    scenario = made(gpus=[gpu(count=2)], pods=pods, offers=[{"resource": "nvidia.com/gpu", "of": "gpus"}])
    hang = NvmlHang(kind="nvml_hang", at=10, for_=10, device=scenario.gpus[device].uuid)
    return replace(scenario, faults=(hang,))


async def test_a_hang_in_one_gpu_ends_nothing():
    """Polls go on, stale readings become unknown, no thread piles up, and all is back with the driver."""
    others = set(readers())
    async with polled(hanging(device=0), **QUICK) as (node, poller):
        await poller.poll()
        with brief_waits(poller, "nvml"):
            async with running(poller):
                await node.step(10)
                await wait_until_async(lambda: failing(poller.snapshot) == {"nvml"})
                # The last readings are not stale yet.
                assert {row.memory_used for row in poller.snapshot.containers} == {1 << 30}
                make_stale(poller)
                await wait_until_async(lambda: not any(row.reading.up for row in poller.snapshot.gpus))
                await wait_until_async(lambda: poller.snapshot.node.gpu_count is None)
                # The kubelet's list had become stale too, until it answered again.
                await wait_until_async(lambda: holders(poller.snapshot) == {"p0", "p1"})
                stale = poller.snapshot
                assert {(row.slices, row.memory_used, row.compute_used) for row in stale.containers} == {
                    (1, None, None)
                }
                assert {row.unattributed_memory for row in stale.gpus} == {None}
                assert stale.node.driver is None
                assert set(health(stale, "nvml").errors) == {"deadline"}
                await wait_until_async(lambda: poller.snapshot.sequence >= stale.sequence + 5)
                assert len(set(readers()) - others) == 1
                await node.step(20)
                await wait_until_async(lambda: not failing(poller.snapshot))
        await poller.poll()
        assert {row.memory_used for row in poller.snapshot.containers} == {1 << 30}
        assert poller.snapshot.node.gpu_count == 2


async def test_a_gpu_that_is_read_before_the_one_that_hangs_has_new_readings():
    async with polled(hanging(device=1), **QUICK) as (node, poller):
        old = [row.reading.read_at for row in (await poller.poll()).gpus]
        await node.step(10)

        async def first_is_new() -> bool:
            await poller.poll()
            return poller.snapshot.gpus[0].reading.read_at > old[0]

        with brief_waits(poller, "nvml"):
            await wait_until_async(first_is_new)
        assert poller.snapshot.gpus[1].reading.read_at == old[1]


async def test_the_page_answers_while_the_driver_hangs():
    async with polled(hanging(device=0), **QUICK) as (node, poller):
        await poller.poll()
        await node.step(10)
        site = site_of(lambda: poller.snapshot, lambda: poller.restart_reason)
        server = Server(make_app(site), ListenAddress("127.0.0.1", 0))
        url = await server.start()
        with brief_waits(poller, "nvml"):
            async with running(poller), ClientSession(url) as session:
                await wait_until_async(lambda: "nvml" in failing(poller.snapshot))
                for path in ("/metrics", "/", "/api/v1/snapshot", "/-/healthy", "/-/ready"):
                    async with session.get(path) as answer:
                        assert answer.status == 200
                        assert await answer.read()
        await server.stop()


async def test_a_node_whose_driver_is_not_loaded_is_empty_until_it_is():
    late = NvmlError(kind="nvml_error", for_=10, function="nvmlInitWithFlags", code="DRIVER_NOT_LOADED")
    scenario = replace(catalog.load("t4-timeslicing"), faults=(late,))
    async with polled(scenario, **QUICK) as (node, poller):
        snapshot = await poller.poll()
        assert failing(snapshot) == {"nvml"}
        assert health(snapshot, "nvml").errors == {"DriverNotLoaded": 1}
        assert "kernel module" in health(snapshot, "nvml").message
        assert (snapshot.gpus, snapshot.containers, snapshot.node.gpu_count) == ((), (), None)
        assert snapshot.node.unresolved == {"nvidia.com/gpu": 15}
        assert poller.restart_reason is None
        await node.step(10)
        assert failing(await poller.poll()) == set()
        assert len(poller.snapshot.gpus) == 4
        assert poller.snapshot.node.unresolved == {}
        assert "infer-1" in holders(poller.snapshot)


async def test_gpus_are_down_while_their_driver_is_away_and_keep_their_holders():
    gone = NvmlError(
        kind="nvml_error", at=10, for_=10, function="nvmlDeviceGetCount_v2", code="UNINITIALIZED"
    )
    scenario = replace(catalog.load("a10-mps"), faults=(gone,))
    async with polled(scenario, **QUICK) as (node, poller):
        await poller.poll()
        await node.step(10)
        assert [row.reading.up for row in (await poller.poll()).gpus] == [False]
        assert poller.snapshot.containers[0].memory_used is None
        assert poller.snapshot.containers[0].slices == 1
        assert (poller.snapshot.node.gpu_count, poller.snapshot.node.driver) == (None, None)
        await node.step(20)
        assert [row.reading.up for row in (await poller.poll()).gpus] == [True]
        assert poller.snapshot.containers[0].memory_used is not None


async def test_an_upgraded_driver_needs_a_restart_of_the_exporter():
    stuck = NvmlError(kind="nvml_error", function="nvmlInitWithFlags", code="LIB_RM_VERSION_MISMATCH")
    async with polled(replace(made(), faults=(stuck,)), **QUICK) as (_, poller):
        assert poller.restart_reason is None
        await poller.poll()
        assert "must be restarted" in poller.restart_reason


async def test_after_a_new_mig_layout_old_devices_leave_with_their_holders():
    """The ids that they hold are counted as unresolved."""
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
