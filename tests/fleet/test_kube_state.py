"""The objects of a cluster from kube-state-metrics, by the answers of a real Prometheus, and without some."""

import re
from collections.abc import Iterator
from time import time

import pytest

from exporter.fleet import kube_state
from exporter.fleet.cluster_view import ClusterView
from exporter.fleet.kube_state import read_kube_state
from exporter.fleet.prometheus import Prometheus
from exporter.waiting.objects import PlacedPod, PodKey, Taint, Toleration
from exporter.waiting.verdict import Judge
from tests.fleet.answering import AT, Answer, Samples, connected, nothing
from tests.product.compat.places import Stored, blocks, serve
from tests.tools import tool

RESOURCE = "nvidia.com/mig-3g.40gb"
SERIES = """
kube_node_info{node="n1"} 1
kube_node_status_allocatable{node="n1",resource="cpu",unit="core"} 3.92
kube_node_status_allocatable{node="n1",resource="memory",unit="byte"} 1024
kube_node_status_allocatable{node="n1",resource="pods",unit="integer"} 110
kube_node_status_allocatable{node="n1",resource="ephemeral_storage",unit="byte"} 5
kube_node_status_allocatable{node="n1",resource="hugepages_2Mi",unit="byte"} 0
kube_node_status_allocatable{node="n1",resource="nvidia_com_mig_3g_40gb",unit="integer"} 2
kube_node_status_allocatable{node="n2",resource="cpu",unit="core"} 64
kube_node_spec_unschedulable{node="n1"} 0
kube_node_spec_unschedulable{node="n2"} 1
kube_node_spec_taint{node="n1",key="gpu",value="yes",effect="NoSchedule"} 1
kube_pod_info{namespace="ml",pod="runs",uid="u1",node="n1"} 1
kube_pod_info{namespace="ml",pod="leaves",uid="u2",node="n1"} 1
kube_pod_info{namespace="ml",pod="done",uid="u3",node="n1"} 1
kube_pod_info{namespace="web",pod="plain",uid="u4",node="n1"} 1
kube_pod_info{namespace="ml",pod="waits",uid="u5"} 1
kube_pod_status_phase{namespace="ml",pod="runs",uid="u1",phase="Running"} 1
kube_pod_status_phase{namespace="ml",pod="runs",uid="u1",phase="Failed"} 0
kube_pod_status_phase{namespace="ml",pod="done",uid="u3",phase="Succeeded"} 1
kube_pod_deletion_timestamp{namespace="ml",pod="leaves",uid="u2"} 1.8e+09
kube_pod_status_unschedulable{namespace="ml",pod="waits",uid="u5"} 1
kube_pod_status_reason{namespace="ml",pod="held",uid="u6",reason="SchedulingGated"} 1
kube_pod_status_reason{namespace="ml",pod="runs",uid="u1",reason="SchedulingGated"} 0
kube_pod_created{namespace="ml",pod="waits",uid="u5"} 1700000000
kube_pod_owner{namespace="ml",pod="waits",owner_kind="Job",owner_name="train",owner_is_controller="true"} 1
kube_pod_owner{namespace="ml",pod="waits",owner_kind="Odd",owner_name="odd",owner_is_controller="false"} 1
"""
REQUESTS = (
    # pod, container, node, resource, unit, value
    ("runs", "a", "n1", "cpu", "core", "0.1"),
    ("runs", "b", "n1", "cpu", "core", "0.2"),
    ("runs", "a", "n1", "nvidia_com_mig_3g_40gb", "integer", "1"),
    ("leaves", "a", "n1", "nvidia_com_mig_3g_40gb", "integer", "1"),
    ("done", "a", "n1", "nvidia_com_mig_3g_40gb", "integer", "1"),
    ("done", "a", "n1", "cpu", "core", "8"),
    ("waits", "a", "", "cpu", "core", "0.5"),
    ("waits", "b", "", "cpu", "core", "0.25"),
    ("waits", "a", "", "nvidia_com_mig_3g_40gb", "integer", "1"),
)
INIT = (("waits", "first", "", "cpu", "core", "0.6"), ("waits", "second", "", "memory", "byte", "7"))
TOLERATIONS = """
kube_pod_tolerations{namespace="ml",pod="waits",uid="u5",key="gpu",operator="Exists",effect="NoSchedule"} 1
kube_pod_tolerations{namespace="ml",pod="held",key="node.kubernetes.io/not-ready",operator="Exists"} 1
kube_pod_scheduler{namespace="ml",pod="waits",uid="u5",name="default-scheduler"} 1
kube_pod_scheduler{namespace="ml",pod="held",uid="u6",name="volcano"} 1
"""
OURS = f'node:gpuslice_offered_slices:sum{{resource="{RESOURCE}"}} 2'


SITUATIONS = {
    "usual": "",
    "twice": "",
    "without tolerations": "",
    "without our records": "",
    "several clusters": 'kube_node_status_allocatable{cluster="west",node="n1",resource="cpu",unit="core"} 1',
    "overwritten": 'kube_pod_info{namespace="monitoring",pod="ksm",node="n1",exported_pod="runs"} 1',
    "nothing": "",
}


def requests(metric: str, rows: tuple[tuple[str, ...], ...]) -> str:
    """Return the series of requests of containers."""
    return "\n".join(
        f'{metric}{{namespace="ml",pod="{pod}",uid="u",container="{container}",node="{node}",'
        f'resource="{resource}",unit="{unit}"}} {value}'
        for pod, container, node, resource, unit, value in rows
    )


def series_of(situation: str) -> str:
    """Return what kube-state-metrics and the recording rules report in a situation."""
    if situation == "nothing":
        return ""
    parts = [SERIES, requests("kube_pod_container_resource_requests", REQUESTS), SITUATIONS[situation]]
    parts.append(requests("kube_pod_init_container_resource_requests", INIT))
    parts.append("" if situation == "without tolerations" else TOLERATIONS)
    parts.append("" if situation == "without our records" else OURS)
    return "\n".join(parts)


def stored(text: str, at: float, **labels: str) -> Iterator[Stored]:
    """Yield series in the text format as samples of one time; labels that are empty are none."""
    for line in filter(None, text.splitlines()):
        name, inside, value = re.fullmatch(r"(.+)\{(.*)\} (\S+)", line).groups()
        found = dict(re.findall(r'(\w+)="([^"]*)"', inside))
        yield Stored(
            {"__name__": name, **{key: each for key, each in found.items() if each}, **labels}, [(at, value)]
        )


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, float]]:
    """Serve all situations, an hour apart, and yield the URL and the time of the first one."""
    folder, begin = tmp_path_factory.mktemp("prometheus"), time() // 7200 * 7200 - 7 * 7200
    program, promtool = tool("prometheus"), tool("promtool")
    found: list[Stored] = []
    for number, situation in enumerate(SITUATIONS):
        for instance in ("a", "b") if situation == "twice" else ("a",):
            found += stored(series_of(situation), begin + 3600 * number, instance=instance)
    blocks(folder, promtool, found)
    with serve(folder, program) as server:
        yield server.url, begin


async def view_in(urls: tuple[str, float], situation: str, late: float = 0.0) -> ClusterView:
    """Return the cluster in a situation, so many seconds after the samples."""
    url, begin = urls
    prometheus = Prometheus(url, deadline=60)
    try:
        return await read_kube_state(prometheus, begin + 3600 * list(SITUATIONS).index(situation) + late)
    finally:
        await prometheus.close()


pytestmark = pytest.mark.tools


@pytest.mark.parametrize("situation", ["usual", "twice"])
async def test_the_objects_of_the_series(urls: tuple[str, float], situation: str) -> None:
    view = await view_in(urls, situation, late=30)

    assert view.failures == ()
    assert view.ages == {"pods": 30, "nodes": 30}
    assert view.objects.nodes.keys() == {"n1", "n2"}
    node = view.objects.nodes["n1"]
    assert node.allocatable == {
        "cpu": 3920,
        "memory": 1024,
        "pods": 110,
        "ephemeral-storage": 5,
        "hugepages-2Mi": 0,
        RESOURCE: 2,
    }
    assert (node.taints, node.cordoned) == ((Taint("gpu", "yes", "NoSchedule"),), False)
    assert view.objects.nodes["n2"].cordoned


async def test_of_pods_that_run_those_with_devices_have_their_names(urls: tuple[str, float]) -> None:
    placed = (await view_in(urls, "usual")).objects.placed

    assert set(map(repr, placed)) == set(
        map(
            repr,
            (
                PlacedPod("n1", {RESOURCE: 1}, key=PodKey("ml", "runs")),
                PlacedPod("n1", {RESOURCE: 1}, ending=True, key=PodKey("ml", "leaves"), ends=1.8e9),
                PlacedPod("n1", {"cpu": 300, "pods": 3}),
            ),
        )
    )


async def test_the_pods_that_wait(urls: tuple[str, float]) -> None:
    view = await view_in(urls, "usual")
    waits, held = view.waiting

    assert view.objects.waiting == view.waiting
    assert (waits.key, waits.uid, waits.owner) == (PodKey("ml", "waits"), "u5", "Job train")
    assert (waits.created, waits.since, waits.reason) == (1.7e9, 1.7e9, "Unschedulable")
    assert waits.priority is None
    # The containers together need more than the init containers one by one.
    assert waits.requests == {"cpu": 750, "memory": 7, RESOURCE: 1, "pods": 1}
    assert waits.tolerations == (Toleration("gpu", "Exists", "", "NoSchedule"),)
    assert (held.key, held.reason, held.scheduler) == (PodKey("ml", "held"), "SchedulingGated", "volcano")


async def test_nodes_are_out_and_never_fit(urls: tuple[str, float]) -> None:
    view = await view_in(urls, "usual")
    verdicts = Judge(view.objects).judge(view.waiting[0])

    assert {node: each.answer for node, each in verdicts.by_node.items()} == {"n1": "no", "n2": "no"}
    assert {node: each.filter for node, each in verdicts.by_node.items()} == {
        "n1": "NodeResourcesFit",
        "n2": "NodeUnschedulable",
    }
    assert verdicts.message() is None


async def test_taints_do_not_count_without_all_tolerations(urls: tuple[str, float]) -> None:
    view = await view_in(urls, "without tolerations")

    assert view.objects.nodes["n1"].taints == ()
    assert not view.objects.nodes["n2"].cordoned
    assert kube_state.NO_TAINTS in view.unseen
    assert kube_state.NO_TAINTS not in (await view_in(urls, "usual")).unseen


async def test_a_resource_of_an_unknown_name_is_judged_by_its_amounts_only(urls: tuple[str, float]) -> None:
    """Where a node has none, a device class may have it."""
    view = await view_in(urls, "without our records")
    first, second = Judge(view.objects).judge(view.waiting[0]).by_node.values()

    assert view.waiting[0].requests["nvidia_com_mig_3g_40gb"] == 1
    assert (first.filter, first.answer) == ("NodeResourcesFit", "no")
    assert view.objects.nodes["n2"].unread == ("nvidia_com_mig_3g_40gb",)
    assert second.filter == "NodeUnschedulable"


@pytest.mark.parametrize(
    ("situation", "failure"),
    [
        ("several clusters", "several clusters (without a name, west)"),
        ("overwritten", "honor_labels: true"),
        ("nothing", "no nodes of kube-state-metrics"),
    ],
)
async def test_series_that_cannot_be_used(urls: tuple[str, float], situation: str, failure: str) -> None:
    view = await view_in(urls, situation)

    assert (view.objects, view.waiting, dict(view.ages)) == (None, None, {})
    assert any(failure in each for each in view.failures)
    assert all("--kubernetes-api on" in each or "honor_labels" in each for each in view.failures)


def answer_without(*failing: str) -> Answer:
    """Return answers of which some fail."""
    questions = kube_state.QUESTIONS | kube_state.PLACED_QUESTIONS
    broken = [questions[name] for name in failing]

    def answer(expression: str) -> Samples | str:
        if expression in broken:
            return "too many samples"
        if expression == kube_state.QUESTIONS["allocatable"]:
            return [({"node": "n1", "resource": "cpu", "unit": "core"}, 1.0)]
        return [({"node": "n1"}, 1.0)] if expression == kube_state.QUESTIONS["pods"] else []

    return answer


@pytest.mark.parametrize(
    ("failing", "has_objects", "has_waiting"),
    [
        ((), True, True),
        (("taints", "ending", "resources"), True, True),
        (("amounts",), False, True),
        (("holders",), False, True),
        (("allocatable",), False, True),
        (("pods",), False, False),
        (("waiting",), False, False),
        (("overwritten",), False, False),
    ],
)
async def test_a_query_that_fails_costs_what_needs_it(
    failing: tuple[str, ...], has_objects: bool, has_waiting: bool
) -> None:
    async with connected(answer_without(*failing)) as prometheus:
        view = await read_kube_state(prometheus, AT)

    assert (view.objects is not None, view.waiting is not None) == (has_objects, has_waiting)
    assert len(view.failures) == len(failing)
    assert all("too many samples" in each for each in view.failures)
    if "ending" in failing:
        assert "which pods are being deleted" in view.unseen


async def test_a_pod_of_an_unknown_age_has_none() -> None:
    usual = answer_without()

    def answer(expression: str) -> Samples | str:
        pod = {"namespace": "ml", "pod": "waits", "uid": "u"}
        return [(pod, 1.0)] if expression == kube_state.QUESTIONS["waiting"] else usual(expression)

    async with connected(answer) as prometheus:
        (pod,) = (await read_kube_state(prometheus, AT)).waiting or ()

    assert (pod.created, pod.since) == (None, None)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("waits", [True, False])
async def test_what_is_placed_is_read_if_a_pod_waits_or_on_request(whole: bool, waits: bool) -> None:
    asked: set[str] = set()
    usual = answer_without()

    def answer(expression: str) -> Samples | str:
        asked.add(expression)
        pod = {"namespace": "ml", "pod": "waits", "uid": "u"}
        return [(pod, 1.0)] if waits and expression == kube_state.QUESTIONS["waiting"] else usual(expression)

    async with connected(answer) as prometheus:
        view = await read_kube_state(prometheus, AT, whole=whole)

    assert (view.objects is not None) == (whole or waits)
    assert (set(kube_state.PLACED_QUESTIONS.values()) <= asked) == (whole or waits)
    assert len(view.waiting or ()) == waits
    assert view.failures == ()


async def test_a_prometheus_without_any_series_says_both_remedies() -> None:
    async with connected(nothing) as prometheus:
        view = await read_kube_state(prometheus, AT)

    assert view.failures == tuple(kube_state.NO_SERIES.format(what) for what in ("nodes", "pods"))
