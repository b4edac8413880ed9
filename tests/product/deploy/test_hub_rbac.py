"""The rights of a hub that reads the cluster: those that the program uses, and no others."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from exporter.kubernetes.whole_cluster import WholeCluster
from tests.core.kubernetes.api import DRA, Api, a_pod
from tests.core.kubernetes.following import QUICK
from tests.product.deploy.charts import chart, refusal
from tests.product.deploy.rendering import Manifest, environment, example, kinds, named
from tests.waiting import wait_until_async

PATH = re.compile(r"/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)/(?P<resource>\w+)")
# Every account may ask which versions of an API group there are (the role system:discovery of the cluster).
DISCOVERY = "/apis/resource.k8s.io"
KINDS = {"pods": "", "nodes": "", **dict.fromkeys(DRA, "resource.k8s.io")}
HUB = {"enabled": True, "prometheusUrl": "http://p"}
Right = tuple[str, str, str]


def granted(role: Manifest) -> set[Right]:
    """Return the rights of a role: group, resource and verb."""
    assert all(rule.keys() == {"apiGroups", "resources", "verbs"} for rule in role["rules"])
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


class Guarded(Api):
    """An API server that allows some rights, and records those that are asked for."""

    def __init__(self, allowed: set[Right]) -> None:
        super().__init__()
        self.allowed, self.asked = allowed, set[Right]()

    def middlewares(self):
        """Refuse what is not allowed."""

        @web.middleware
        async def guard(request: web.Request, handler) -> web.StreamResponse:
            assert request.method == "GET"
            if request.path == DISCOVERY:
                return await handler(request)
            path = PATH.fullmatch(request.path)
            assert path is not None
            right = (path["group"] or "", path["resource"], "watch" if "watch" in request.query else "list")
            self.asked.add(right)
            if right not in self.allowed:
                return web.json_response({"kind": "Status", "code": 403}, status=403)
            return await handler(request)

        return [guard]


@asynccontextmanager
async def watched(allowed: set[Right]) -> AsyncIterator[tuple[Guarded, WholeCluster]]:
    """Run a server with some rights, and watch its cluster."""
    api = Guarded(allowed)
    api.pods.put(a_pod("train"))
    await api.start()
    cluster = WholeCluster(api.configure, QUICK)
    try:
        await cluster.start()
        await cluster.tried(60)
        yield api, cluster
    finally:
        await cluster.close()
        await api.stop()


def role() -> Manifest:
    """Return the role of the hub."""
    return named(example("hub-waiting"), "ClusterRole", "-hub-waiting")


async def test_the_hub_uses_each_verb_of_its_role_and_no_other() -> None:
    """Through watches that end, versions that expire and a server that restarts."""
    allowed = granted(role())
    async with watched(allowed) as (api, cluster):
        kept = (api.pods, api.nodes, *api.dra.values())
        for each in kept:
            await each.watching.wait()
            each.expired = True
            each.end_watches()
        await wait_until_async(lambda: not any(each.expired for each in kept))
        await api.stop()
        await api.start()
        for each in kept:
            await each.watching.wait()
        await wait_until_async(lambda: cluster.state().failures == ())

        assert api.asked == allowed
        assert allowed == {(group, kind, verb) for kind, group in KINDS.items() for verb in ("list", "watch")}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_a_missing_right_is_named(kind: str, verb: str) -> None:
    async with watched(granted(role()) - {(KINDS[kind], kind, verb)}) as (_, cluster):
        await wait_until_async(lambda: bool(cluster.state().failures))
        (failure,) = cluster.state().failures

    assert f"allow to list and watch {kind} in the whole cluster" in failure


def test_the_rights_are_those_of_the_hubs_own_account() -> None:
    objects = example("hub-waiting")
    binding = named(objects, "ClusterRoleBinding", "-hub-waiting")
    account = named(objects, "ServiceAccount", "-hub")
    hub = named(objects, "Deployment", "-hub")["spec"]["template"]["spec"]
    exporter = named(objects, "DaemonSet", "gpuslice-exporter")["spec"]["template"]["spec"]

    assert hub["automountServiceAccountToken"] is True
    assert hub["serviceAccountName"] == account["metadata"]["name"]
    assert account["automountServiceAccountToken"] is False
    assert environment(hub["containers"][0])["GPUSLICE_KUBERNETES_API"] == "on"
    assert binding["roleRef"]["name"] == role()["metadata"]["name"]
    assert binding["subjects"] == [
        {
            "kind": "ServiceAccount",
            "name": account["metadata"]["name"],
            "namespace": account["metadata"]["namespace"],
        }
    ]
    assert exporter["serviceAccountName"] != account["metadata"]["name"]
    assert exporter["automountServiceAccountToken"] is False


@pytest.mark.tools
def test_account_and_role_may_be_your_own() -> None:
    waiting = {"enabled": True, "serviceAccount": "mine"}
    own = chart(values={"hub": HUB | {"waiting": waiting}})
    bare = chart(values={"hub": HUB | {"waiting": waiting}, "rbac": {"create": False}})

    for objects in (own, bare):
        spec = named(objects, "Deployment", "-hub")["spec"]["template"]["spec"]
        assert spec["serviceAccountName"] == "mine"
        assert len([each for each in objects if each["kind"] == "ServiceAccount"]) == 1
    (subject,) = named(own, "ClusterRoleBinding", "-hub-waiting")["subjects"]
    assert subject["name"] == "mine"
    assert not {"ClusterRole", "ClusterRoleBinding"} & kinds(bare)


@pytest.mark.tools
def test_rights_without_a_hub_are_refused() -> None:
    assert "Enable the hub too" in refusal({"hub": {"waiting": {"enabled": True}}})
