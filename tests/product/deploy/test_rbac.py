"""The roles for the API server allow all that the program does there, and no other verb."""

import re
from collections.abc import Iterator, Mapping
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from exporter.kubernetes import Cluster
from tests.core.kubernetes.api import NODE, Api, a_pod, uid_of
from tests.core.kubernetes.following import QUICK
from tests.product.deploy.rendering import Manifest, composed, example, kinds, only, pod_spec
from tests.tools import ROOT
from tests.waiting import wait_until_async

FOLLOWED = {"kubernetes-api": {"nodes", "pods"}, "node-labels": {"nodes"}}
# Paths of the core API: /api/v1/[namespaces/NS/]RESOURCE[/NAME[/SUBRESOURCE]].
PATH = re.compile(
    r"/api/v1/(?:namespaces/[^/]+/(?=[^/]))?(?P<resource>\w+)(?:/(?P<name>[^/]+)(?P<sub>/\w+)?)?"
)
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
SELECTORS = {"pods": f"spec.nodeName={NODE}", "nodes": f"metadata.name={NODE}"}


class Guarded(Api):
    """An API server that allows what a role allows, and records the requests: resource and verb."""

    def __init__(self, role: Manifest) -> None:
        super().__init__()
        self.allowed = set(_granted(role))
        self.asked: set[tuple[str, str]] = set()
        self.selected: set[tuple[str, str]] = set()

    async def start(self) -> None:
        """Serve every path and every method."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._guard)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self._port = self._runner.addresses[0][1]

    async def _guard(self, request: web.Request) -> web.StreamResponse:
        resource, verb = _attributes(request)
        self.asked.add((resource, verb))
        self.selected.add((resource, request.query.get("fieldSelector", "")))
        if (resource, verb) not in self.allowed:
            return web.json_response({"kind": "Status", "code": 403}, status=403)
        return await self._answer(request)


def _attributes(request: web.Request) -> tuple[str, str]:
    """Return the resource and verb that the API server compares with roles."""
    path = PATH.fullmatch(request.path)
    if path is None:
        return request.path, request.method.lower()
    resource = path["resource"] + (path["sub"] or "")
    if request.method in VERBS:
        return resource, VERBS[request.method]
    if path["name"]:
        return resource, "get"
    return resource, "watch" if request.query.get("watch") in ("1", "true", "True") else "list"


def _granted(role: Manifest) -> Iterator[tuple[str, str]]:
    for rule in role["rules"]:
        assert rule.keys() == {"apiGroups", "resources", "verbs"}
        assert rule["apiGroups"] == [""]
        yield from ((resource, verb) for resource in rule["resources"] for verb in rule["verbs"])


@pytest.fixture(params=FOLLOWED)
def component(request: pytest.FixtureRequest) -> tuple[str, Manifest]:
    """Return a component for the API server, and its role."""
    return request.param, only(composed(request.param), "ClusterRole")


@asynccontextmanager
async def guarded(role: Manifest):
    """Run the server and its client."""
    api = Guarded(role)
    api.pods.put(a_pod("train"))
    await api.start()
    labels: list[Mapping[str, str]] = []
    followed = Cluster(NODE, api.configure, labels.append, pace=QUICK)
    try:
        await followed.start()
        yield api, followed, labels
    finally:
        await followed.close()
        await api.stop()


async def _go_through_everything(api: Guarded, followed: Cluster, labels: list, resources: set[str]) -> None:
    """Change objects, end watches, expire versions, and restart the server."""
    kept = [api.nodes, api.pods] if "pods" in resources else [api.nodes]

    async def all_watched() -> None:
        for each in kept:
            await each.watching.wait()

    await all_watched()
    api.label(nvidia_com__mig_config_state="pending")
    await wait_until_async(lambda: labels[-1].get("nvidia.com/mig.config.state") == "pending")
    for each in kept:
        each.watching.clear()
        each.end_watches()
    await all_watched()
    for each in kept:
        each.watching.clear()
        each.expired = True
        each.end_watches()
    await wait_until_async(lambda: not any(each.expired for each in kept))
    await all_watched()
    await api.stop()
    await api.start()
    await all_watched()
    api.label(done="yes")
    await wait_until_async(lambda: labels[-1] == {"done": "yes"})
    if "pods" in resources:
        api.pods.put(a_pod("late"))
        await wait_until_async(lambda: uid_of("late") in followed.pods.pods)
        api.pods.delete(uid_of("train"))
        await wait_until_async(lambda: followed.pods.pods.keys() == {uid_of("late")})


async def test_the_program_uses_each_verb_of_its_role(component: tuple[str, Manifest]) -> None:
    """Whatever happens to a watch, it needs no other."""
    name, role = component
    async with guarded(role) as (api, followed, labels):
        await _go_through_everything(api, followed, labels, FOLLOWED[name])
        refused = api.asked - api.allowed

        assert api.asked & api.allowed == api.allowed
        assert api.allowed == {(resource, verb) for resource in FOLLOWED[name] for verb in ("list", "watch")}
        # The role for labels alone does not allow pods: the request is refused, and the program goes on.
        assert refused == ({("pods", "list")} if name == "node-labels" else set())
        assert followed.node.labels == {"done": "yes"}
        assert (followed.pods is None) == (name == "node-labels")


def test_the_chart_grants_the_same_rights(component: tuple[str, Manifest]) -> None:
    """To the account of its own pods alone."""
    name, role = component
    objects = example(name)
    binding, account = only(objects, "ClusterRoleBinding"), pod_spec(objects)["serviceAccountName"]

    assert only(objects, "ClusterRole")["rules"] == role["rules"]
    assert binding["roleRef"]["name"] == only(objects, "ClusterRole")["metadata"]["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": "gpuslice"}]
    assert not {"Role", "RoleBinding"} & kinds(objects)


async def test_it_asks_for_its_own_node_only() -> None:
    """A role cannot be restricted to a node, so each request is: the node's pods, and the node."""
    async with guarded(only(composed("kubernetes-api"), "ClusterRole")) as (api, _, _):
        await wait_until_async(lambda: {resource for resource, _ in api.selected} == {"nodes", "pods"})

        assert api.selected == set(SELECTORS.items())


@pytest.mark.parametrize("verb", ["list", "watch"])
@pytest.mark.parametrize("resource", ["nodes", "pods"])
async def test_each_verb_is_needed(resource: str, verb: str) -> None:
    """Without one of them the program names the missing right."""
    role = only(composed("kubernetes-api"), "ClusterRole")
    less = [
        {"apiGroups": [""], "resources": [each], "verbs": [other]}
        for each, other in _granted(role)
        if (each, other) != (resource, verb)
    ]
    async with guarded({"rules": less}) as (_, followed, _):
        await wait_until_async(lambda: bool(followed.failures))
        (failure,) = followed.failures

        assert f"list and watch {resource}" in failure


def test_one_module_has_the_client_of_the_api_server() -> None:
    """The followers of pods and node use it."""
    importing = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "exporter").rglob("*.py")
        if re.search(r"^\s*(from|import) kubernetes_asyncio", path.read_text(), re.MULTILINE)
    }

    assert importing == {"exporter/kubernetes/access.py"}


def test_the_base_has_no_role() -> None:
    """No binding, and no token in the pod either."""
    objects = composed()

    assert kinds(objects) == {"Namespace", "ServiceAccount", "DaemonSet", "Service"}
    assert only(objects, "ServiceAccount")["automountServiceAccountToken"] is False
    assert pod_spec(objects)["automountServiceAccountToken"] is False
