"""The roles for the API server: they let the program do all that it does there, and not one verb more."""

import re
from collections.abc import Iterator, Mapping
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from exporter.kubernetes import Cluster
from tests.deploy.charts import NAMESPACE, chart
from tests.deploy.confined import objects_of
from tests.deploy.rendering import Manifest, only, pod_spec
from tests.deploy.tools import ROOT
from tests.kubernetes.api import NODE, Api, a_pod, uid_of
from tests.kubernetes.following import QUICK, until

FOLLOWED = {"kubernetes-api": {"nodes", "pods"}, "node-labels": {"nodes"}}
# Where the core API has its objects: /api/v1/[namespaces/NS/]RESOURCE[/NAME[/SUBRESOURCE]].
PLACE = re.compile(
    r"/api/v1/(?:namespaces/[^/]+/(?=[^/]))?(?P<resource>\w+)(?:/(?P<name>[^/]+)(?P<sub>/\w+)?)?"
)
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
SELECTORS = {"pods": f"spec.nodeName={NODE}", "nodes": f"metadata.name={NODE}"}


class Guarded(Api):
    """An API server that lets through what a role allows, and notes what was asked: resource and verb."""

    def __init__(self, role: Manifest) -> None:
        super().__init__()
        self.allowed = set(_granted(role))
        self.asked: set[tuple[str, str]] = set()
        self.selected: set[tuple[str, str]] = set()

    async def start(self) -> None:
        """Listen to every path and every method."""
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
    """Name resource and verb as the API server does before it looks at roles."""
    place = PLACE.fullmatch(request.path)
    if place is None:
        return request.path, request.method.lower()
    resource = place["resource"] + (place["sub"] or "")
    if request.method in VERBS:
        return resource, VERBS[request.method]
    if place["name"]:
        return resource, "get"
    return resource, "watch" if request.query.get("watch") in ("1", "true", "True") else "list"


def _granted(role: Manifest) -> Iterator[tuple[str, str]]:
    for rule in role["rules"]:
        assert rule.keys() == {"apiGroups", "resources", "verbs"}
        assert rule["apiGroups"] == [""]
        yield from ((resource, verb) for resource in rule["resources"] for verb in rule["verbs"])


@pytest.fixture(scope="module", params=FOLLOWED)
def component(request: pytest.FixtureRequest) -> tuple[str, Manifest]:
    """Give a component that lets the API server be asked, and its role."""
    return request.param, only(objects_of(request.param), "ClusterRole")


@asynccontextmanager
async def guarded(role: Manifest):
    """Run the server and what asks it."""
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
    """Let happen what can: changes, watches that end, versions that are forgotten, a server that restarts."""
    kept = [api.nodes, api.pods] if "pods" in resources else [api.nodes]

    async def all_watched() -> None:
        for each in kept:
            await each.watching.wait()

    await all_watched()
    api.label(nvidia_com__mig_config_state="pending")
    await until(lambda: labels[-1].get("nvidia.com/mig.config.state") == "pending")
    for each in kept:
        each.watching.clear()
        each.end_watches()
    await all_watched()
    for each in kept:
        each.watching.clear()
        each.expired = True
        each.end_watches()
    await until(lambda: not any(each.expired for each in kept))
    await all_watched()
    await api.stop()
    await api.start()
    await all_watched()
    api.label(done="yes")
    await until(lambda: labels[-1] == {"done": "yes"})
    if "pods" in resources:
        api.pods.put(a_pod("late"))
        await until(lambda: uid_of("late") in followed.pods.pods)
        api.pods.delete(uid_of("train"))
        await until(lambda: followed.pods.pods.keys() == {uid_of("late")})


@pytest.mark.slow
async def test_a_role_is_what_the_program_makes_use_of(component: tuple[str, Manifest]) -> None:
    """Through everything that can happen to a watch it asks for each verb of the role, and is let through."""
    name, role = component
    async with guarded(role) as (api, followed, labels):
        await _go_through_everything(api, followed, labels, FOLLOWED[name])
        refused = api.asked - api.allowed

        assert api.asked & api.allowed == api.allowed
        assert api.allowed == {(resource, verb) for resource in FOLLOWED[name] for verb in ("list", "watch")}
        # The role for labels alone does not let it see pods: it asks, is refused, and goes on.
        assert refused == ({("pods", "list")} if name == "node-labels" else set())
        assert followed.node.labels == {"done": "yes"}
        assert (followed.pods is None) == (name == "node-labels")


@pytest.mark.slow
def test_the_chart_gives_the_same_rights(component: tuple[str, Manifest]) -> None:
    """The example of the same name grants what the component grants, to the account of its own pods alone."""
    name, role = component
    objects = chart(name)
    binding, account = only(objects, "ClusterRoleBinding"), pod_spec(objects)["serviceAccountName"]

    assert only(objects, "ClusterRole")["rules"] == role["rules"]
    assert binding["roleRef"]["name"] == only(objects, "ClusterRole")["metadata"]["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}]
    assert not {"Role", "RoleBinding"} & {each["kind"] for each in objects}


async def test_it_asks_for_its_own_node_only(component: tuple[str, Manifest]) -> None:
    """A role cannot be narrowed to a node, so each question is: the node's pods, and the node."""
    _, role = component
    async with guarded(role) as (api, _, _):
        await until(lambda: {resource for resource, _ in api.selected} == {"nodes", "pods"})

        assert api.selected == set(SELECTORS.items())


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["list", "watch"])
@pytest.mark.parametrize("resource", ["nodes", "pods"])
async def test_each_verb_is_needed(resource: str, verb: str) -> None:
    """Without any one of them something is not followed, and the program names the right that is missing."""
    role = only(objects_of("kubernetes-api"), "ClusterRole")
    less = [
        {"apiGroups": [""], "resources": [each], "verbs": [other]}
        for each, other in _granted(role)
        if (each, other) != (resource, verb)
    ]
    async with guarded({"rules": less}) as (_, followed, _):
        await until(lambda: bool(followed.failures))
        (failure,) = followed.failures

        assert f"list and watch {resource}" in failure


def test_nothing_else_can_ask() -> None:
    """The API server's client is imported in one place, which the followers of pods and node go through."""
    importing = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "exporter").rglob("*.py")
        if re.search(r"^\s*(from|import) kubernetes_asyncio", path.read_text(), re.MULTILINE)
    }

    assert importing == {"exporter/kubernetes/access.py"}


def test_the_base_has_no_role() -> None:
    """By itself the program can ask the API server nothing: no role, no binding, no token."""
    objects = objects_of()

    assert not {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"} & {
        each["kind"] for each in objects
    }
    assert only(objects, "ServiceAccount")["automountServiceAccountToken"] is False
    assert only(objects, "DaemonSet")["spec"]["template"]["spec"]["automountServiceAccountToken"] is False
