"""Which source the view of the cluster comes from, and what is said if one fails."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.config import Settings, load_settings
from exporter.fleet import cluster_source
from exporter.fleet.cluster_source import (
    NOTHING,
    ClusterWatch,
    api_of_command,
    api_of_hub,
    better,
    read_view,
)
from exporter.fleet.cluster_view import ClusterView
from exporter.fleet.kube_state import QUESTIONS
from exporter.fleet.prometheus import Prometheus
from exporter.waiting.objects import Objects
from tests.core.kubernetes.api import Api, api_server
from tests.fleet.answering import AT, Samples, connected, nothing
from tests.waiting import wait_until_async

EMPTY = Objects(nodes={}, placed=(), waiting=())
API = ClusterView(source="the Kubernetes API", at=AT, failures=("api",))
STATE = ClusterView(source="kube-state-metrics", at=AT, failures=("state",))


def settings(**options: str) -> Settings:
    """Return settings of a cluster's command."""
    return load_settings({"command": "hub", **options}, {})


def kube_state(expression: str) -> Samples | str:
    """Return the answers of a Prometheus with kube-state-metrics of one node, 5 s old."""
    if expression == QUESTIONS["allocatable"]:
        return [({"node": "of-state", "resource": "cpu", "unit": "core"}, 1.0)]
    if expression == QUESTIONS["age"]:
        return [({}, 5.0)]
    return [({"node": "of-state"}, 1.0)] if expression == QUESTIONS["pods"] else []


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """Run an API server."""
    async with api_server() as server:
        yield server


@asynccontextmanager
async def running(watch: ClusterWatch) -> AsyncIterator[ClusterWatch]:
    """Read while the body runs."""
    task = asyncio.create_task(watch.run())
    try:
        yield watch
        assert not task.done()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.mark.parametrize(
    ("options", "used"),
    [
        ({}, False),
        ({"kubernetes_api": "auto"}, False),
        ({"kubernetes_api": "off", "kubeconfig": "/config"}, False),
        ({"kubernetes_api": "on"}, True),
        ({"kubeconfig": "/config"}, True),
    ],
)
def test_the_hub_asks_the_api_on_request_only(options: dict[str, str], used: bool) -> None:
    assert (api_of_hub(settings(**options)) is not None) == used


async def _host(configure) -> str:
    return (await configure()).host


async def test_a_command_uses_the_kubeconfig_of_kubectl(api: Api, tmp_path: Path) -> None:
    home, other = tmp_path / "home", tmp_path / "other"
    (home / ".kube").mkdir(parents=True)
    assert api_of_command(settings(), {"HOME": str(home)}) is None
    assert api_of_command(settings(), {}) is None

    api.kubeconfig(home / ".kube" / "config")
    assert await _host(api_of_command(settings(), {"HOME": str(home)})) == api.url

    other.write_text(api.kubeconfig(other).read_text().replace(api.url, "http://other"))
    environment = {"HOME": str(home), "KUBECONFIG": f":{tmp_path}/absent:{other}"}
    assert await _host(api_of_command(settings(), environment)) == "http://other"
    assert await _host(api_of_command(settings(kubeconfig=str(home / ".kube" / "config")), environment)) == (
        api.url
    )
    assert api_of_command(settings(kubernetes_api="off"), environment) is None
    # KUBECONFIG replaces the usual place, as for kubectl.
    assert api_of_command(settings(), environment | {"KUBECONFIG": "/absent"}) is None


async def test_a_single_read_asks_prometheus_only_if_the_api_is_not_used(api: Api) -> None:
    async with connected(kube_state) as prometheus:
        of_api = await read_view(prometheus, api.configure)
        of_state = await read_view(prometheus, None)

    assert (of_api.source, list(of_api.objects.nodes)) == ("the Kubernetes API", ["gpu-node-07"])
    assert (of_state.source, list(of_state.objects.nodes)) == ("kube-state-metrics", ["of-state"])
    assert of_state.unseen


async def test_a_refused_api_is_said_and_kube_state_metrics_are_read_instead(api: Api) -> None:
    api.pods.refuse = 403
    async with connected(kube_state) as prometheus:
        view = await read_view(prometheus, api.configure)

    assert view.source == "kube-state-metrics"
    assert view.objects is not None
    (failure,) = view.failures
    assert "allow to list and watch pods in the whole cluster" in failure


async def test_without_any_source_the_options_are_named(api: Api) -> None:
    assert (await read_view(None, None)).failures == (NOTHING,)
    api.nodes.refuse = 403
    view = await read_view(None, api.configure)
    assert (view.objects, view.waiting) == (None, ())
    assert len(view.failures) == 1


async def test_a_prometheus_that_does_not_answer_is_a_failure() -> None:
    prometheus = Prometheus("http://127.0.0.1:1", deadline=60)
    view = await read_view(prometheus, None)
    await prometheus.close()

    assert view.objects is None
    assert "cannot be reached" in view.failures[0]


@pytest.mark.parametrize(
    ("api_has", "state_has", "source"),
    [
        ((None, None), (None, None), API.source),
        ((None, ()), (None, None), API.source),
        ((None, None), (None, ()), STATE.source),
        ((None, ()), (EMPTY, ()), STATE.source),
        ((EMPTY, ()), (EMPTY, ()), API.source),
    ],
)
def test_the_view_that_more_can_be_judged_by_is_taken(api_has, state_has, source: str) -> None:
    views = [
        replace(view, objects=has[0], waiting=has[1]) for view, has in ((API, api_has), (STATE, state_has))
    ]
    view = better(*views)

    assert (view.source, view.failures) == (source, ("api", "state"))


async def test_the_hub_follows_the_api_and_never_asks_prometheus_for_it(api: Api) -> None:
    asked: list[str] = []

    def answer(expression: str) -> Samples | str:
        asked.append(expression)
        return []

    async with connected(answer) as prometheus:
        watch = ClusterWatch(prometheus, api.configure)
        assert watch.view.objects is None
        async with running(watch):
            await wait_until_async(lambda: watch.view.objects is not None)
            await wait_until_async(lambda: watch.view.ages.keys() >= {"pods", "nodes", "device classes"})
            assert (watch.view.source, watch.view.failures) == ("the Kubernetes API", ())

    assert asked == []


async def test_the_hub_reads_kube_state_metrics_while_the_api_refuses(api: Api) -> None:
    api.pods.refuse = 403
    async with connected(kube_state) as prometheus:
        watch = ClusterWatch(prometheus, api.configure, interval=0.05)
        async with running(watch):
            await wait_until_async(lambda: watch.view.source == "kube-state-metrics")
            assert any("403" in failure for failure in watch.view.failures)
            api.pods.refuse = 0
            await wait_until_async(lambda: watch.view.source == "the Kubernetes API")


async def test_old_answers_of_kube_state_metrics_age_and_are_dropped() -> None:
    now = [1000.0]
    async with connected(kube_state) as prometheus:
        watch = ClusterWatch(prometheus, None, interval=60, clock=lambda: now[0])
        assert watch.view.failures == (cluster_source._NOT_YET,)
        assert await watch.refresh() == 60
        assert watch.view.ages == {"pods": 5, "nodes": 5}
        now[0] += 100
        assert watch.view.ages == {"pods": 105, "nodes": 105}
        assert watch.view.at == 1100
        now[0] += 600
        assert (watch.view.objects, watch.view.waiting, dict(watch.view.ages)) == (None, None, {})


async def test_an_unforeseen_answer_costs_only_this_view(monkeypatch) -> None:
    async def fails(*_: object, **__: object) -> ClusterView:
        raise KeyError("odd")

    monkeypatch.setattr(cluster_source, "read_kube_state", fails)
    async with connected(kube_state) as prometheus:
        watch = ClusterWatch(prometheus, None)
        await watch.refresh()

    assert watch.view.failures == ("kube-state-metrics: KeyError('odd')",)


async def test_an_unforeseen_state_of_the_api_costs_only_this_view(api: Api, monkeypatch) -> None:
    async with connected(nothing) as prometheus:
        watch = ClusterWatch(prometheus, api.configure)
        monkeypatch.setattr(watch._cluster, "state", lambda: {}["odd"])
        assert await watch.refresh() >= 60


async def test_the_hub_without_either_says_so_and_goes_on() -> None:
    async with connected(nothing) as prometheus:
        watch = ClusterWatch(prometheus, None)
        await watch.refresh()

    assert watch.view.objects is None
    assert all("--kubernetes-api on" in failure for failure in watch.view.failures)
