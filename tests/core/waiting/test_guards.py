"""Pods that keep others out: little of the cluster is looked at, and judged is as if all were."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from exporter.waiting.filters import ClusterState
from exporter.waiting.objects import AvoidedPods, Objects, PlacedPod, PodKey, Requirement, WaitingPod
from exporter.waiting.trial import Change, Trials
from exporter.waiting.verdict import Judge
from tests.core.waiting.records import cluster, node, pod

NODES = ("n1", "n2", "n3", "n4")


@st.composite
def guarded(draw: Any) -> tuple[WaitingPod, Objects]:
    """Draw nodes in zones, pods that keep others out of theirs, and a pod that waits."""
    nodes = [node(name, labels={"host": name, "zone": draw(st.sampled_from("ab"))}) for name in NODES]
    avoided = st.builds(
        AvoidedPods,
        topology=st.sampled_from(("zone", "zone", "host", "rack")),
        namespaces=st.just(frozenset({"ml"})),
        labels=st.sampled_from("xxy").map(lambda app: (Requirement("app", "In", (app,)),)),
    )
    placed = tuple(
        PlacedPod(
            draw(st.sampled_from((*NODES, "n4", "gone"))),
            {"pods": 1},
            avoids=tuple(draw(st.lists(avoided, max_size=1))),
            key=PodKey("ml", f"p{number}"),
        )
        for number in range(draw(st.integers(0, 4)))
    )
    return pod(labels={"app": "x"}), cluster(*nodes, placed=placed)


@given(guarded(), st.sets(st.integers(0, 3), min_size=1))
def test_after_a_change_pods_elsewhere_keep_out_whom_they_kept_out(
    drawn: tuple[WaitingPod, Objects], numbers: set[int]
):
    waiting, objects = drawn
    trials = Trials(ClusterState(objects))
    for name in objects.nodes:
        here = (each for each in objects.placed if each.node == name)
        gone = frozenset(each.key for each in here if int(each.key.name[1:]) in numbers)
        stay = tuple(each for each in objects.placed if each.key not in gone)

        expected = Judge(replace(objects, placed=stay)).judge(waiting).by_node[name]
        assert trials.after(waiting, Change(node=name, gone=gone)) == expected


def test_one_of_two_pods_that_keep_out_alike_may_go():
    avoids = (AvoidedPods("zone", frozenset({"ml"}), (Requirement("app", "In", ("x",)),)),)
    placed = tuple(
        PlacedPod(name, {"pods": 1}, avoids=avoids, key=PodKey("ml", name)) for name in ("n1", "n1", "n2")
    )
    nodes = (node(name, labels={"zone": "a"}) for name in ("n1", "n2"))
    trials = Trials(ClusterState(cluster(*nodes, placed=placed)))
    waiting = pod(labels={"app": "x"})

    for name in ("n1", "n2"):
        assert trials.after(waiting, Change(node=name, gone=frozenset({PodKey("ml", name)}))).answer == "no"


def test_pods_that_differ_in_labels_that_no_pod_asks_for_share_their_verdicts():
    """Most pods have labels of their own, such as that of their job."""
    avoids = (AvoidedPods("zone", frozenset({"ml"}), (Requirement("app", "In", ("x",)),)),)
    guard = PlacedPod("n1", {"pods": 1}, avoids=avoids, key=PodKey("ml", "guard"))
    judge = Judge(cluster(node("n1", labels={"zone": "a"}), placed=(guard,)))

    first, second, other = (
        judge.asked(pod(labels=labels))
        for labels in ({"app": "x", "job": "1"}, {"app": "x", "job": "2"}, {"app": "y", "job": "1"})
    )
    assert first == second
    assert first != other
