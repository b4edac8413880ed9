"""The simulated Kubernetes API lists and watches as a real one, so that a watcher misses no change."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest
from aiohttp import ClientSession
from kubernetes_asyncio.client import Configuration

from exporter.demo.cluster import api as fake_api
from exporter.demo.cluster.__main__ import show
from exporter.demo.cluster.api import Collection, FakeApi
from exporter.demo.cluster.cluster_file import load_cluster
from exporter.kubernetes.access import access
from exporter.kubernetes.whole_cluster import WholeCluster
from exporter.waiting.objects import PodKey
from tests.waiting import wait_until_async

PODS = "/api/v1/pods"


@asynccontextmanager
async def served() -> AsyncIterator[tuple[FakeApi, ClientSession]]:
    """Run a server, and a client of it."""
    api = FakeApi()
    await api.start()
    try:
        async with ClientSession(api.url) as client:
            yield api, client
    finally:
        await api.stop()


def _about(uid: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"uid": uid, "name": uid}, "spec": spec}


async def _list(client: ClientSession, **query: str) -> dict[str, Any]:
    async with client.get(PODS, params=query) as answer:
        return await answer.json()


async def _events(client: ClientSession, version: str, number: int) -> list[tuple[str, str]]:
    """Return the kinds and uids, or codes, of the next events since a version."""
    async with client.get(PODS, params={"watch": "1", "resourceVersion": version}) as answer:
        events = [json.loads(await answer.content.readline()) for _ in range(number)]
    return [
        (each["type"], each["object"].get("metadata", {}).get("uid") or str(each["object"]["code"]))
        for each in events
    ]


async def test_a_list_comes_in_pages() -> None:
    async with served() as (api, client):
        for number in range(5):
            api.pods.put(_about(str(number)))
        uids, rest = [], ""
        while True:
            page = await _list(client, limit="2", **({"continue": rest} if rest else {}))
            assert len(page["items"]) <= 2
            uids += [each["metadata"]["uid"] for each in page["items"]]
            rest = page["metadata"].get("continue", "")
            if not rest:
                break

    assert uids == ["0", "1", "2", "3", "4"]


async def test_changes_between_a_list_and_its_watch_are_not_missed() -> None:
    async with served() as (api, client):
        api.pods.put(_about("a"))
        version = (await _list(client))["metadata"]["resourceVersion"]
        api.pods.put(_about("b"))
        api.pods.put(_about("a", nodeName="n"))
        api.pods.delete("b")

        assert await _events(client, version, 3) == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]


async def test_a_version_whose_changes_are_forgotten_has_expired(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_api, "KEPT_EVENTS", 2)
    async with served() as (api, client):
        api.pods = Collection(count(100))
        old = (await _list(client))["metadata"]["resourceVersion"]
        for uid in ("a", "b", "c"):
            api.pods.put(_about(uid))

        assert await _events(client, old, 1) == [("ERROR", "410")]
        # Of the second change on, all is known.
        assert await _events(client, str(int(old) + 1), 2) == [("ADDED", "b"), ("ADDED", "c")]


async def test_a_watch_ends_after_the_time_that_was_asked_for() -> None:
    async with served() as (_, client):
        query = {"watch": "1", "timeoutSeconds": "0.01"}
        async with client.get(PODS, params=query) as answer:
            assert await answer.read() == b""


async def test_a_client_that_leaves_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async with served() as (api, client):
        for _ in range(5):
            async with client.get(PODS, params={"watch": "1"}):
                pass
            api.pods.put(_about("a"))
            await _list(client)

    assert not caplog.records


def test_only_objects_that_change_have_an_event() -> None:
    pods = Collection(count(1))
    pods.replace({"a": _about("a"), "b": _about("b")})
    before = dict(pods.objects)
    pods.replace({"a": _about("a"), "c": _about("c")})

    assert pods.objects.keys() == {"a", "c"}
    assert pods.objects["a"] is before["a"]


async def test_a_watcher_of_the_cluster_sees_it_change(tmp_path) -> None:
    cluster, started = load_cluster(), 1_700_000_000.0
    async with served() as (api, _):
        show(cluster, api, 0.0, started)
        configure = access("auto", api.kubeconfig(tmp_path / "kubeconfig"))
        assert configure is not None
        assert isinstance(await configure(), Configuration)
        watched = WholeCluster(configure)
        await watched.start()
        try:
            await watched.tried(60.0)
            first = watched.state()
            assert (first.failures, first.unseen) == ((), ())
            show(cluster, api, 200.0, started)

            def placed() -> bool:
                objects = watched.state().objects
                assert objects is not None
                return PodKey("llm", "serve-3") in {pod.key for pod in objects.placed}

            await wait_until_async(placed)
        finally:
            await watched.close()

    assert {pod.key.name for pod in first.waiting or ()} == {pod.name for pod in cluster.pods if not pod.at}
