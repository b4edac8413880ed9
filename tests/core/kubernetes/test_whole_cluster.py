"""The objects of the whole cluster are watched through all failures of the API server, each kind apart."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import Any

import pytest

from exporter.kubernetes import cluster, collection, whole_cluster
from exporter.kubernetes.follower import Pace
from exporter.kubernetes.whole_cluster import WatchedCluster, WholeCluster, read_once
from exporter.waiting.objects import PodKey
from tests.core.kubernetes import scheduling_objects
from tests.core.kubernetes.api import DRA, Api, api_server
from tests.core.kubernetes.following import QUICK
from tests.waiting import wait_until_async

KINDS = {"pods", "nodes", "resource claims", "resource slices", "device classes", "device taint rules"}
OBJECTS = {"resourceclaims": "CLAIM", "resourceslices": "SLICE", "deviceclasses": "CLASS"}


def pod(name: str, *, node: str = "", phase: str = "Running", cpu: str = "1") -> dict[str, Any]:
    """Return a pod on a node; without one it waits, and the scheduler could not place it."""
    waits = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
    return {
        "metadata": {"namespace": "ml", "name": name, "uid": f"uid of {name}"},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}],
        },
        "status": {"phase": phase} if node else {"phase": "Pending", **waits},
    }


def of_kind(kind: str, name: str = "one") -> dict[str, Any]:
    """Return an object of a kind that has all fields."""
    about = deepcopy(getattr(scheduling_objects, OBJECTS[kind])) if kind in OBJECTS else {"spec": {}}
    about["metadata"] = {
        "namespace": "ml",
        "name": name,
        **about.get("metadata", {}),
        "uid": f"uid of {name}",
    }
    return about


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """Run a server with a node, a pod that runs there and one that waits."""
    async with api_server() as server:
        server.pods.put(pod("runs", node="gpu-node-07"))
        server.pods.put(pod("waits"))
        yield server


@asynccontextmanager
async def watched(api: Api, pace: Pace = QUICK) -> AsyncIterator[WholeCluster]:
    """Watch while the body runs, which begins once each kind was listed or could not be."""
    watching = WholeCluster(api.configure, pace)
    await watching.start()
    try:
        await watching.tried(60)
        yield watching
    finally:
        await watching.close()


def _failing(watching: WholeCluster) -> set[str]:
    """Return the kinds that cannot be read."""
    return {failure.partition(":")[0] for failure in watching.state().failures}


def names(state: WatchedCluster) -> tuple[set[str], set[str]]:
    """Return the names of the pods that run, and of those that wait."""
    assert state.objects is not None
    return {each.key.name for each in state.objects.placed}, {each.key.name for each in state.objects.waiting}


async def test_each_kind_is_read_and_followed(api: Api) -> None:
    for kind in OBJECTS:
        api.dra[kind].put(of_kind(kind))
    async with watched(api) as watching:
        state = watching.state()
        assert (state.failures, state.unseen, state.ages.keys()) == ((), (), KINDS)
        assert names(state) == ({"runs"}, {"waits"})
        assert state.waiting == state.objects.waiting
        assert state.objects.placed[0].key == PodKey("ml", "runs")
        assert {"gpu-node-07"} == state.objects.nodes.keys()
        assert [*map(len, (state.objects.claims, state.objects.slices, state.objects.classes))] == [1, 1, 1]
        assert not state.objects.device_taint_rules
        assert all(0 <= age < 60 for age in state.ages.values())

        for kept in (api.pods, *api.dra.values()):
            await kept.watching.wait()
        api.pods.put(pod("waits", node="gpu-node-07"))
        api.dra["devicetaintrules"].put(of_kind("devicetaintrules"))
        await wait_until_async(lambda: names(watching.state()) == ({"runs", "waits"}, set()))
        await wait_until_async(lambda: watching.state().objects.device_taint_rules)
        api.pods.delete("uid of runs")
        await wait_until_async(lambda: names(watching.state()) == ({"waits"}, set()))


async def test_nothing_is_kept_of_pods_that_have_ended_or_that_no_scheduler_has_seen(
    api: Api, caplog
) -> None:
    for phase in ("Succeeded", "Failed"):
        api.pods.put(pod(phase, node="gpu-node-07", phase=phase))
    fresh = pod("fresh")
    del fresh["status"]["conditions"]
    api.pods.put(fresh)
    async with watched(api) as watching:
        assert names(watching.state()) == ({"runs"}, {"waits"})
        assert (watching.state().unseen, caplog.records) == ((), [])

        await api.pods.watching.wait()
        api.pods.put(pod("runs", node="gpu-node-07", phase="Succeeded"))
        await wait_until_async(lambda: names(watching.state()) == (set(), {"waits"}))

    assert {query["fieldSelector"] for query in api.pods.asked} == {
        "status.phase!=Succeeded,status.phase!=Failed"
    }


async def test_lists_come_in_pages(api: Api, monkeypatch) -> None:
    for number in range(5):
        api.pods.put(pod(f"more-{number}", node="gpu-node-07"))
    monkeypatch.setattr(whole_cluster, "_PODS", whole_cluster.replace(whole_cluster._PODS, page=3))
    async with watched(api) as watching:
        assert len(watching.state().objects.placed) == 6

    lists = [query for query in api.pods.asked if "watch" not in query]
    assert [(query["limit"], query.get("continue")) for query in lists] == [
        ("3", None),
        ("3", "3"),
        ("3", "6"),
    ]
    # From the server's store: its cache would not answer in pages.
    assert all("resourceVersion" not in query for query in lists)


async def test_a_list_that_expires_between_its_pages_begins_again(api: Api, monkeypatch, caplog) -> None:
    api.pods.expired_pages = 2
    monkeypatch.setattr(whole_cluster, "_PODS", whole_cluster.replace(whole_cluster._PODS, page=1))
    async with watched(api) as watching:
        await wait_until_async(lambda: watching.state().objects is not None)
        assert names(watching.state()) == ({"runs"}, {"waits"})

    assert caplog.records == []


async def test_a_list_without_an_end_is_refused(api: Api, monkeypatch) -> None:
    monkeypatch.setattr(collection, "MOST_PAGES", 1)
    monkeypatch.setattr(whole_cluster, "_PODS", whole_cluster.replace(whole_cluster._PODS, page=1))
    async with watched(api) as watching:
        assert watching.state().failures == (
            "pods: the list of the pods of the cluster has more than 1 pages",
        )
        assert watching.state().objects is None


async def test_a_version_that_expired_is_listed_again_and_unchanged_records_are_shared(api: Api) -> None:
    async with watched(api) as watching:
        before = watching.state().objects
        await api.pods.watching.wait()
        api.pods.put(pod("late", node="gpu-node-07"))
        api.pods.expired = True
        api.pods.end_watches()
        await wait_until_async(lambda: not api.pods.expired)
        await wait_until_async(lambda: sum("watch" not in query for query in api.pods.asked) == 2)
        await api.pods.watching.wait()
        after = watching.state().objects

    assert {each.key.name for each in after.placed} == {"runs", "late"}
    assert {id(each) for each in before.placed} < {id(each) for each in after.placed}


async def test_a_cluster_without_dra_has_no_claims_and_that_is_not_a_failure(api: Api) -> None:
    api.versions = ()
    async with watched(api) as watching:
        state = watching.state()

        assert state.failures == ()
        assert (state.objects.claims, state.objects.slices, state.objects.classes) == ({}, (), {})
        assert not state.objects.device_taint_rules

        # It comes with an upgrade of the API server.
        api.versions = ("v1",)
        api.dra["deviceclasses"].put(of_kind("deviceclasses"))
        await wait_until_async(lambda: watching.state().objects.classes)


async def test_kinds_that_are_forbidden_are_unknown_with_the_remedy(api: Api) -> None:
    for kind in DRA:
        api.dra[kind].refuse = 403
    async with watched(api) as watching:
        state = watching.state()

        assert (state.objects.claims, state.objects.slices, state.objects.classes) == (None, None, None)
        assert state.objects.device_taint_rules
        assert names(state) == ({"runs"}, {"waits"})
        assert state.ages.keys() == {"pods", "nodes"}
        assert len(state.failures) == len(DRA)
        for kind, failure in zip(DRA, state.failures, strict=True):
            assert f"allow to list and watch {kind} in the whole cluster" in failure


async def test_what_is_forbidden_and_does_not_exist_is_not_missed(api: Api) -> None:
    api.versions = ()
    for kind in DRA:
        api.dra[kind].refuse = 403
    async with watched(api) as watching:
        state = watching.state()

        assert (state.failures, state.objects.claims) == ((), {})
        assert not state.objects.device_taint_rules


@pytest.mark.parametrize("version", ["v1", "v1beta2"])
async def test_kinds_are_read_in_each_version_that_has_the_same_form(api: Api, version: str) -> None:
    api.versions = (version, "v1beta1")
    api.dra["resourceslices"].put(of_kind("resourceslices"))
    async with watched(api) as watching:
        assert watching.state().failures == ()
        assert len(watching.state().objects.slices) == 1


async def test_kinds_in_other_versions_only_are_unknown(api: Api) -> None:
    api.versions = ("v1beta1",)
    async with watched(api) as watching:
        state = watching.state()

        assert (state.objects.claims, state.objects.slices, state.objects.classes) == (None, None, None)
        # Rules of devices have one form for this purpose: that they exist.
        assert not state.objects.device_taint_rules
        assert len(state.failures) == 3
        assert all("in versions only that are not read here: v1beta1" in each for each in state.failures)


async def test_without_an_answer_about_the_group_its_kinds_are_unknown(api: Api) -> None:
    api.versions, api.refuse_group = (), 500
    async with watched(api) as watching:
        assert watching.state().objects.claims is None
        assert len(watching.state().failures) == len(DRA)


@pytest.mark.parametrize("kind", ["pods", "nodes"])
@pytest.mark.parametrize("trouble", ["refuse", "garbage", "slow"])
async def test_without_pods_or_nodes_nothing_is_judged(
    api: Api, kind: str, trouble: str, monkeypatch
) -> None:
    kept = getattr(api, kind)
    kept.refuse = 403 if trouble == "refuse" else 0
    kept.garbage = b"<html>log in</html>" if trouble == "garbage" else None
    kept.silent = trouble == "slow"
    with monkeypatch.context() as patched:
        if trouble == "slow":
            patched.setattr(collection, "PAGE_SECONDS", 0.5)
        async with watched(api) as watching:
            # On a busy machine another list may take too long once, too.
            await wait_until_async(lambda: _failing(watching) == {kind})
            state = watching.state()
            assert state.objects is None
            assert (state.waiting is None) == (kind == "pods")
            (failure,) = state.failures
            assert failure.startswith(f"{kind}: ")
            assert {"refuse": "403", "garbage": "not a list", "slow": "in time"}[trouble] in failure

            kept.refuse, kept.garbage, kept.silent = 0, None, False
            await wait_until_async(lambda: watching.state().objects is not None)
            await wait_until_async(lambda: watching.state().failures == ())
            assert names(watching.state()) == ({"runs"}, {"waits"})


async def test_objects_that_cannot_be_read_cost_themselves_and_are_counted(api: Api) -> None:
    api.pods.put({"metadata": {"uid": "odd"}, "spec": {}})
    async with watched(api) as watching:
        assert names(watching.state()) == ({"runs"}, {"waits"})
        assert watching.state().unseen == ("1 pods that cannot be read",)

        await api.pods.watching.wait()
        api.pods.send_bytes(b"garbage\n")
        await wait_until_async(lambda: watching.state().unseen == ("2 pods that cannot be read",))


async def test_objects_are_dropped_when_the_server_stays_away(api: Api) -> None:
    async with watched(api, Pace(first_pause=0.02, forget_after=0.3)) as watching:
        await api.pods.watching.wait()
        await api.stop()
        await wait_until_async(lambda: not watching.state().ages)

        assert (watching.state().objects, watching.state().waiting) == (None, None)
        assert watching.state().failures


async def test_a_single_read_lists_each_kind_once(api: Api) -> None:
    state = await read_once(api.configure)

    assert names(state) == ({"runs"}, {"waits"})
    assert (state.failures, state.ages.keys()) == ((), KINDS)


async def test_a_single_read_ends_at_a_failure_and_in_time(api: Api) -> None:
    await api.stop()
    state = await read_once(api.configure)
    assert state.objects is None
    # One cause is said once, whatever it costs.
    (failure,) = state.failures
    assert failure.startswith("the Kubernetes API: Cannot connect")

    await api.start()
    api.pods.silent = True
    state = await read_once(api.configure, seconds=0.5)
    assert state.objects is None


async def test_a_missing_client_is_named_with_its_remedy(api: Api, monkeypatch, caplog) -> None:
    """Among the failures, which a page shows, and in the log at once."""

    def no_library() -> None:
        raise ModuleNotFoundError("No module named 'kubernetes_asyncio'")

    monkeypatch.setattr(cluster, "library", no_library)
    state = await asyncio.wait_for(read_once(api.configure), 60)

    assert state.objects is None
    (failure,) = state.failures
    assert "install gpuslice-exporter[kubernetes]" in failure
    assert "the image whose tag ends in -kubernetes" in failure
    assert [record.getMessage() for record in caplog.records if failure in record.getMessage()]


async def test_records_of_pods_share_their_parts(api: Api) -> None:
    """Hundreds of thousands must fit into memory."""
    api.pods.put(pod("twin", node="gpu-node-07"))
    async with watched(api) as watching:
        first, second = watching.state().objects.placed

    assert first.requests is second.requests
    assert first.node is second.node
    assert first.key.namespace is second.key.namespace
