"""What the page shows while a kubelet fills up after its restart."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.demo.fake_kubelet import FakeKubelet
from exporter.demo.scenario import KubeletFailure, KubeletFilling, PodDelete, Scenario, catalog
from exporter.model import Snapshot
from tests.core.kubernetes.api import a_pod, api_server
from tests.core.poller.bench import QUICK, failing, make_stale, polled
from tests.fake.demo.making import made, pod

GPU = "nvidia.com/gpu"
AWAY, EMPTY, SOME, FULL = 10, 20, 30, 300
# Pods listed by a real kubelet of 52 pods in the 130 ms after its first one, and seconds between two.
FILLING = (9, 18, 28, 47)
FILLING_PAUSE = 0.03
# Seconds for which a real kubelet listed static pods only (1.37: 0.4 to 0.6 s).
STATIC_PAUSE = 0.5


def scenario(identity: str, *faults, **changes) -> Scenario:
    """Return a node of one GPU in four replicas, each held by a pod (d is static), and a pod with none."""
    process = {"memory": "1 GiB", "load": {"high": 20}}
    holders = [pod(name, process, devices={GPU: [f"{{gpu:0}}::{n}"]}) for n, name in enumerate("abcd")]
    holders[3]["static"] = True
    thief = pod("thief", process | {"device": "{gpu:0}"})
    return replace(
        made(
            identity=identity,
            offers=[{"resource": GPU, "of": "gpus", "replicas": 4}],
            pods=[*holders, thief],
            **changes,
        ),
        faults=faults,
    )


def restarts() -> tuple[KubeletFailure | KubeletFilling, ...]:
    """Take the kubelet away, then let it list no pod, then the static one, for minutes."""
    return (
        KubeletFailure(kind="kubelet_down", at=AWAY, for_=EMPTY - AWAY),
        KubeletFilling(kind="kubelet_filling", at=EMPTY, for_=SOME - EMPTY, pods=0),
        KubeletFilling(kind="kubelet_filling", at=SOME, for_=FULL - SOME, pods=1),
    )


def slices(snapshot: Snapshot) -> dict[str, int | None]:
    """Return the slices of each container by pod."""
    return {row.holder.pod: row.slices for row in snapshot.containers}


def held_seconds(snapshot: Snapshot) -> dict[str, float]:
    """Return the GPU-seconds that each holder has been entitled to."""
    return {row.holder.pod: row.totals.entitled_gpu_seconds for row in snapshot.containers if row.slices}


HELD = {"a": 1, "b": 1, "c": 1, "d": 1}
IDENTITIES = ("pods_api", "pod_logs")


@pytest.mark.parametrize("identity", IDENTITIES)
async def test_holders_stay_until_the_kubelet_lists_all_running_pods(identity: str):
    async with polled(scenario(identity, *restarts()), **QUICK | {"stale_after": 60}) as (node, poller):
        before = await poller.poll()
        assert slices(before) == HELD | {"thief": 0}
        assert before.node.unlisted_pods == 0
        seconds = held_seconds(before)
        for moment, unlisted in ((EMPTY, 5), (EMPTY + 1, 5), (SOME, 4), (SOME + 1, 4)):
            await node.step(moment)
            now = await poller.poll()
            assert failing(now) == set()
            assert slices(now) == HELD | {"thief": 0}
            assert now.node.unlisted_pods == unlisted
            assert now.node.allocations_read_at == before.node.allocations_read_at
            assert now.gpus[0].holders == 4
            assert {row.compute_entitled for row in now.containers if row.slices} == {0.25}
            assert all(seconds[name] < value for name, value in held_seconds(now).items())
            seconds = held_seconds(now)
        await node.step(FULL)
        after = await poller.poll()
        assert slices(after) == HELD | {"thief": 0}
        assert after.node.unlisted_pods == 0
        assert after.node.allocations_read_at > before.node.allocations_read_at
        assert held_seconds(after).keys() == seconds.keys()


async def test_holders_return_after_a_stale_answer_while_their_pods_run():
    async with polled(scenario("pod_logs", *restarts()), **QUICK) as (node, poller):
        before = await poller.poll()
        await node.step(AWAY)
        make_stale(poller)
        assert slices(await poller.poll()) == dict.fromkeys("abcd") | {"thief": None}
        await node.step(SOME)
        again = await poller.poll()
        assert slices(again) == HELD | {"thief": 0}
        assert again.node.allocations_read_at == before.node.allocations_read_at
        make_stale(poller)
        later = await poller.poll()
        assert slices(later) == HELD | {"thief": 0}
        assert all(value >= held_seconds(before)[name] for name, value in held_seconds(later).items())


async def test_claims_stay_while_the_kubelet_fills_up_and_health_becomes_stale():
    node_of_claims = replace(catalog.load("dra-only"), faults=restarts())
    async with polled(node_of_claims, **QUICK) as (node, poller):
        before = await poller.poll()
        assert [len(row.claims) for row in before.containers] == [1, 1, 1]
        assert {row.health for row in before.containers} == {"Healthy", "Unhealthy"}
        await node.step(SOME)
        for _ in range(2):
            make_stale(poller)
            later = await poller.poll()
            assert later.node.unlisted_pods
            assert [row.claims for row in later.containers] == [row.claims for row in before.containers]
            assert {row.health for row in later.containers} == {""}


@pytest.mark.parametrize("identity", IDENTITIES)
async def test_a_holder_that_ends_meanwhile_leaves_at_the_next_poll(identity: str):
    ends = PodDelete(kind="pod_delete", at=SOME + 1, pod="ml/b")
    async with polled(scenario(identity, *restarts(), ends), **QUICK | {"stale_after": 60}) as (node, poller):
        await poller.poll()
        await node.step(SOME)
        await poller.poll()
        await node.step(SOME + 1)
        now = await poller.poll()
        assert slices(now) == {"a": 1, "c": 1, "d": 1, "thief": 0}
        assert now.gpus[0].holders == 3


@pytest.mark.parametrize("identity", IDENTITIES)
async def test_without_an_earlier_list_slices_are_unknown_until_the_list_is_complete(identity: str):
    faults = (KubeletFilling(kind="kubelet_filling", for_=EMPTY, pods=1),)
    async with polled(scenario(identity, *faults), **QUICK) as (node, poller):
        first = await poller.poll()
        assert slices(first) == {"a": None, "b": None, "c": None, "d": 1, "thief": None}
        assert (first.gpus[0].holders, first.gpus[0].memory_entitled) == (None, None)
        assert [count.allocated for count in first.gpus[0].slices] == [None]
        assert first.node.unlisted_pods == 4
        await node.step(EMPTY)
        full = await poller.poll()
        assert slices(full) == HELD | {"thief": 0}
        assert full.gpus[0].holders == 4


async def restarted(kubelet: FakeKubelet) -> None:
    """Stop and start it; it learns the pods as a real one does: none, static ones, some, and then all."""
    await kubelet.stop()
    kubelet.filled = 0
    await kubelet.start()
    await asyncio.sleep(0.1)
    kubelet.filled = sum(pod.static for pod in kubelet.pods)
    if kubelet.filled:
        await asyncio.sleep(STATIC_PAUSE)
    for kubelet.filled in FILLING:
        await asyncio.sleep(FILLING_PAUSE)
    kubelet.filled = None


async def test_no_moment_of_a_restart_has_a_false_number():
    async with polled(scenario("pods_api"), **QUICK | {"stale_after": 60}) as (node, poller):
        await poller.poll()
        restart = asyncio.ensure_future(restarted(node.kubelet))
        seen = set()
        while not restart.done():
            snapshot = await poller.poll()
            # In the moment in which no kubelet answers, a container without an allocation may have got one.
            unsure = "podresources" in failing(snapshot)
            assert slices(snapshot) == HELD | {"thief": None if unsure else 0}
            seen.add(snapshot.node.unlisted_pods)
        await restart
        assert 5 in seen
        final = await poller.poll()
        assert (slices(final), final.node.unlisted_pods) == (HELD | {"thief": 0}, 0)


@pytest.mark.parametrize("moment", [0, FULL])
async def test_the_last_holder_of_a_node_leaves_at_the_next_poll(moment: int):
    ends = [PodDelete(kind="pod_delete", at=moment + 1, pod=f"ml/{name}") for name in ("a", "b", "c", "d")]
    faults = restarts() if moment else ()
    async with polled(scenario("pods_api", *faults, *ends)) as (node, poller):
        for time in (0, EMPTY, SOME, FULL) if moment else (0,):
            await node.step(time)
            assert slices(await poller.poll()) == HELD | {"thief": 0}
        await node.step(moment + 1)
        assert slices(await poller.poll()) == {"thief": 0}


async def test_without_a_view_of_processes_former_holders_stay_until_they_are_stale():
    async with polled(scenario("pods_api", *restarts(), host_pid=False), **QUICK) as (node, poller):
        assert slices(await poller.poll()) == HELD
        await node.step(SOME)
        now = await poller.poll()
        assert slices(now) == HELD
        make_stale(poller)
        later = await poller.poll()
        assert slices(later) == {"d": 1}
        assert later.gpus[0].holders is None
        await node.step(FULL)
        assert slices(await poller.poll()) == HELD


async def test_an_outage_of_kubelet_and_api_server_removes_no_holder(tmp_path: Path):
    async with api_server() as api:
        config = api.kubeconfig(tmp_path / "config")
        node_of = scenario("pod_logs", *restarts())
        for each in node_of.pods:
            (container,) = each.containers
            about = a_pod(each.name, each.uid)
            about["status"]["containerStatuses"][0]["containerID"] = f"containerd://{container.container_id}"
            api.pods.put(about)
        async with polled(node_of, kubeconfig=config, **QUICK) as (node, poller):
            await poller.first()
            assert slices(poller.snapshot) == HELD | {"thief": 0}
            await api.pods.watching.wait()
            api.pods.refuse = 503
            api.pods.end_watches()
            for moment in (EMPTY, SOME):
                await node.step(moment)
                assert slices(await poller.poll()) == HELD | {"thief": 0}
                make_stale(poller)
                assert slices(await poller.poll()) == HELD | {"thief": 0}
            api.pods.refuse = 0
            await node.step(FULL)
            after = await poller.poll()
            assert (slices(after), after.node.unlisted_pods) == (HELD | {"thief": 0}, 0)


async def test_a_restart_is_logged_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO", logger="exporter.poll.kubelet_restart")
    async with polled(scenario("pods_api", *restarts()), **QUICK | {"stale_after": 60}) as (node, poller):
        for moment in (0, 1, EMPTY, EMPTY + 1, SOME, SOME + 1, FULL, FULL + 1):
            await node.step(moment)
            await poller.poll()
    started, ended = [each.message for each in caplog.records if each.name == "exporter.poll.kubelet_restart"]
    assert "does not list 5 running pods yet (ml/a, ml/b, ml/c, ...)" in started
    assert ended == "kubelet lists all running pods again"


@pytest.mark.parametrize("identity", IDENTITIES)
async def test_shares_stay_until_the_device_plugin_registers_again(identity: str):
    async with polled(scenario(identity, *restarts()), **QUICK | {"stale_after": 60}) as (node, poller):
        await poller.poll()
        await node.step(EMPTY)
        assert node.kubelet.filled == 0
        now = await poller.poll()
        assert [(count.offered, count.allocated) for count in now.gpus[0].slices] == [(4, 4)]
        assert {row.compute_entitled for row in now.containers if row.slices} == {0.25}


@pytest.mark.parametrize("identity", IDENTITIES)
async def test_a_static_pod_that_is_removed_leaves_the_list_before_its_container(identity: str):
    """The kubelet drops it at once, its process runs for a grace period: no 0 is claimed, and sums hold."""
    async with polled(scenario(identity), **QUICK) as (node, poller):
        before = await poller.poll()
        node.kubelet.pods = tuple(pod for pod in node.kubelet.pods if not pod.static)
        now = await poller.poll()
        assert slices(now).get("d") is None
        assert {name: count for name, count in slices(now).items() if name in "abc"} == dict.fromkeys(
            "abc", 1
        )
        used = sum(row.memory_used or 0 for row in now.containers) + now.gpus[0].unattributed_memory
        assert used == before.gpus[0].reading.memory.used
