"""What the page says when a device plugin reports replicas of a GPU unhealthy."""

from dataclasses import replace

from exporter.demo.scenario import Scenario
from exporter.model import SliceCount, Snapshot
from tests.core.poller.bench import QUICK, failing, polled
from tests.fake.demo.making import gpu, made, pod

GPU = "nvidia.com/gpu"
SOME, SHARE = 10, 0.25


def scenario(*unhealthy: int, gpus: int = 1) -> Scenario:
    """Return GPUs in four replicas; two of the first are held, and these become unhealthy."""
    process = {"memory": "1 GiB", "load": {"high": 20}}
    ids = [f"{{gpu:0}}::{number}" for number in unhealthy]
    return made(
        gpus=[gpu(count=gpus)],
        offers=[{"resource": GPU, "of": "gpus", "replicas": 4}],
        pods=[pod(name, process, devices={GPU: [f"{{gpu:0}}::{n}"]}) for n, name in ((0, "a"), (3, "b"))],
        faults=[{"kind": "unhealthy", "at": SOME, "resource": GPU, "devices": ids}],
    )


def shares(snapshot: Snapshot) -> dict[str, tuple[float | None, int | None]]:
    """Return the entitlement of each holder to compute and memory, by pod."""
    return {row.holder.pod: (row.compute_entitled, row.memory_entitled) for row in snapshot.containers}


def counts(snapshot: Snapshot) -> SliceCount:
    """Return the slices of the first GPU."""
    (count,) = snapshot.gpus[0].slices
    return count


async def test_a_free_replica_that_becomes_unhealthy_changes_no_share():
    async with polled(scenario(1)) as (node, poller):
        before = await poller.poll()
        assert counts(before) == SliceCount(GPU, 4, 2, 0, 0)
        await node.step(SOME)
        after = await poller.poll()
        assert counts(after) == SliceCount(GPU, 4, 2, 1, 1)
        assert counts(after).free == 1
        assert shares(after) == shares(before) == dict.fromkeys("ab", (SHARE, 4 << 30))
        assert failing(after) == set()


async def test_a_held_replica_that_becomes_unhealthy_changes_no_share():
    async with polled(scenario(3)) as (node, poller):
        before = await poller.poll()
        await node.step(SOME)
        after = await poller.poll()
        assert counts(after) == SliceCount(GPU, 4, 2, 1, 0)
        assert shares(after) == shares(before)


async def test_the_last_replica_of_each_gpu_becomes_unhealthy():
    """It could be a plugin with fewer replicas, too: shares are unknown then, and never of a third."""
    made_of = scenario(3, gpus=2)
    ids = made_of.faults[0].devices
    other = (f"{made_of.gpus[1].uuid}::3",)
    second = replace(made_of.faults[0], at=2 * SOME, devices=(*ids, *other))
    async with polled(replace(made_of, faults=(*made_of.faults, second))) as (node, poller):
        await poller.poll()
        await node.step(SOME)
        assert (counts(await poller.poll()).offered, counts(poller.snapshot).unhealthy) == (4, 1)
        await node.step(2 * SOME)
        now = await poller.poll()
        assert [gpu.slices[0].offered for gpu in now.gpus] == [None, None]
        assert set(shares(now).values()) == {(None, None)}


async def test_a_replica_that_was_unhealthy_before_the_start():
    """A gap in the numbers, or another GPU of the resource, shows how many replicas there are."""
    for unhealthy, gpus in ((1, 1), (3, 2)):
        async with polled(scenario(unhealthy, gpus=gpus)) as (node, poller):
            await node.step(SOME)
            now = await poller.poll()
            assert (counts(now).offered, counts(now).unhealthy) == (4, 1)
            assert {share for share, _ in shares(now).values()} == {SHARE}


async def test_the_last_replica_of_the_only_gpu_was_unhealthy_before_the_start():
    async with polled(scenario(3)) as (node, poller):
        await node.step(SOME)
        now = await poller.poll()
        assert counts(now) == SliceCount(GPU, None, 2)
        assert set(shares(now).values()) == {(None, None)}


async def test_while_a_device_plugin_is_away_shares_stay_and_health_is_unknown():
    async with polled(scenario(1), **QUICK) as (node, poller):
        before = await poller.poll()
        offered, node.kubelet.offered = node.kubelet.offered, ()
        away = await poller.poll()
        assert counts(away) == SliceCount(GPU, 4, 2, None, None)
        assert shares(away) == shares(before)
        node.kubelet.offered = offered
        assert counts(await poller.poll()) == counts(before)


async def test_a_plugin_that_restarts_without_the_last_replica():
    """It is unhealthy, or the plugin makes one less: shares are unknown, and never of a third."""
    async with polled(scenario(1), **QUICK) as (node, poller):
        node.kubelet.pods = tuple(pod for pod in node.kubelet.pods if pod.name != "b")
        before = await poller.poll()
        assert counts(before).offered == 4
        offered, node.kubelet.offered = node.kubelet.offered, ()
        await poller.poll()
        node.kubelet.offered = offered[:3]
        now = await poller.poll()
        assert counts(now).offered is None
        assert shares(now)["a"] == (None, None)
        node.kubelet.offered = offered
        assert counts(await poller.poll()).offered == 4


async def test_a_plugin_that_was_set_up_with_fewer_replicas():
    async with polled(scenario(1), **QUICK) as (node, poller):
        await poller.poll()
        offered, node.kubelet.offered = node.kubelet.offered, ()
        await poller.poll()
        node.kubelet.offered = offered[:2]
        now = await poller.poll()
        assert counts(now) == SliceCount(GPU, None, 2)
