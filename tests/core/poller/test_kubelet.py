"""What the page shows while the kubelet is away, and how soon it is right again."""

from dataclasses import replace

import pytest

from exporter.demo.scenario import KubeletFailure, PodDelete, catalog
from exporter.exposition import Exposition, choose_format
from exporter.metrics.selection import Selection
from tests.core.golden.page import Page
from tests.core.poller.bench import (
    FAR,
    QUICK,
    brief_waits,
    failing,
    health,
    holders,
    make_stale,
    memories,
    polled,
    rows,
    running,
)
from tests.fake.demo.making import made, pod
from tests.waiting import wait_until_async

AWAY, BACK = 10, 20


def with_faults(name: str, *faults):
    """Return a scenario of the catalog with other faults."""
    return replace(catalog.load(name), faults=faults)


def down():
    """Take the kubelet away for a while."""
    return KubeletFailure(kind="kubelet_down", at=AWAY, for_=BACK - AWAY)


async def test_who_holds_what_is_kept_for_a_while_then_leaves_and_comes_back():
    """The last answer is shown, with its age, until it is stale; then holdings are unknown, not none."""
    async with polled(with_faults("t4-timeslicing", down()), **QUICK) as (node, poller):
        before = await poller.poll()
        await node.step(AWAY)
        kept = await poller.poll()
        assert failing(kept) == {"podresources"}
        assert health(kept, "podresources").errors == {"unavailable": 1}
        assert str(node.paths.pod_resources_socket) in health(kept, "podresources").message
        assert holders(kept) == holders(before)
        assert kept.node.allocations_read_at == before.node.allocations_read_at
        make_stale(poller)
        stale = await poller.poll()
        assert holders(stale) == set()
        assert stale.node.allocations_read_at is None
        assert {gpu.holders for gpu in stale.gpus} == {None}
        assert {gpu.sharing for gpu in stale.gpus} == {"unknown"}
        # Who uses a GPU is known from its processes; whether it holds any of it is not.
        assert {row.holder.pod for row in stale.containers} > {"shell-oskar", "infer-1"}
        assert {row.slices for row in stale.containers} == {None}
        assert {row.memory_entitled for row in stale.containers} == {None}
        await node.step(BACK)
        assert holders(await poller.poll()) == holders(before)
        assert failing(poller.snapshot) == set()


async def test_sums_go_on_over_a_silent_kubelet():
    async with polled(with_faults("a10-mps", down()), **QUICK) as (node, poller):
        first = (await poller.poll()).containers
        await node.step(AWAY)
        make_stale(poller)
        for _ in range(2):
            await poller.poll()
        await node.step(BACK)
        again = (await poller.poll()).containers
        assert [row.totals.first_seen for row in again] == [row.totals.first_seen for row in first]
        assert all(row.totals.entitled_gpu_seconds > 0 for row in again)


async def test_a_kubelet_that_returns_is_noticed_before_the_next_poll_is_due():
    gone = PodDelete(kind="pod_delete", at=AWAY, pod="ml/nb-anna")
    async with polled(with_faults("t4-timeslicing", down(), gone), **FAR) as (node, poller):
        await poller.first()
        assert "nb-anna" in holders(poller.snapshot)
        await node.step(AWAY)
        await poller.poll()
        assert failing(poller.snapshot) == {"podresources"}
        async with running(poller):
            await node.step(BACK)
            await wait_until_async(lambda: not failing(poller.snapshot))
        assert "nb-anna" not in holders(poller.snapshot)
        assert "nb-bruno" in holders(poller.snapshot)


async def test_without_a_kubelet_there_are_devices_and_no_holders_until_it_starts():
    scenario = with_faults("t4-timeslicing", KubeletFailure(kind="kubelet_down", for_=BACK))
    async with polled(scenario, **FAR) as (node, poller):
        await poller.first()
        assert health(poller.snapshot, "podresources").errors == {"absent": 1}
        assert {gpu.holders for gpu in poller.snapshot.gpus} == {None}
        assert {memory.total for _, memory, _, _ in memories(poller.snapshot)} == {15360 << 20}
        async with running(poller):
            await node.step(BACK)
            await wait_until_async(lambda: bool(holders(poller.snapshot)))


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (KubeletFailure(kind="kubelet_hang", at=AWAY, for_=10), "deadline"),
        (KubeletFailure(kind="kubelet_rate_limit", at=AWAY, for_=10), "rate_limited"),
    ],
)
async def test_a_kubelet_that_does_not_answer_costs_only_its_own_data(fault, reason: str):
    async with polled(with_faults("a10-mps", fault), **QUICK) as (node, poller):
        before = await poller.poll()
        await node.step(AWAY)
        with brief_waits(poller, *(["podresources", "identity"] if reason == "deadline" else [])):
            after = await poller.poll()
        assert health(after, "podresources").errors == {reason: 1}
        # The names come from the same kubelet, and from the files that it keeps where it rejects calls.
        assert failing(after) <= {"podresources", "identity"}
        assert holders(after) == holders(before)
        assert all(row.memory_used for row in after.containers)
        assert after.gpus[0].reading.read_at > before.gpus[0].reading.read_at


async def test_a_holder_of_an_unknown_device_is_not_shown_to_hold_nothing():
    lost = "GPU-99999999-0000-0000-0000-000000000000"
    process = {"device": "{gpu:0}", "memory": "1 GiB"}
    pods = [pod("lost", process, devices={"nvidia.com/gpu": [lost]}), pod("free", process)]
    async with polled(made(pods=pods)) as (_, poller):
        snapshot = await poller.poll()
        assert snapshot.node.unresolved == {"nvidia.com/gpu": 1}
        assert [row.slices for row in rows(snapshot, "lost")] == [None]
        assert [row.slices for row in rows(snapshot, "free")] == [0]


async def test_the_page_before_the_first_poll_with_a_kubelet_and_without():
    exposition = Exposition(Selection(metric_set="full", dcgm_names="all"), hostname_label="Hostname")

    def page() -> str:
        return exposition.page(poller.snapshot).body(choose_format("")).decode()

    async with polled(with_faults("t4-timeslicing", down()), **QUICK) as (node, poller):
        assert Page(page()).value("gpuslice_collector_success", collector="podresources") is None
        await poller.poll()
        assert Page(page()).value("gpuslice_collector_success", collector="podresources") == 1
        await node.step(AWAY)
        await poller.poll()
        assert Page(page()).value("gpuslice_collector_success", collector="podresources") == 0
        make_stale(poller)
        await poller.poll()
        assert "gpuslice_container_slices{" not in page()
        assert "gpuslice_gpu_holders{" not in page()
        assert "gpuslice_container_memory_used_bytes{" in page()
