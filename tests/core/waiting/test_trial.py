"""A node after a change is judged as in the cluster after that change, though little of it is looked at."""

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
        topology=st.sampled_from(("host", "zone", "rack")),
        namespaces=st.just(frozenset({"ml"})),
        labels=st.sampled_from("xy").map(lambda app: (Requirement("app", "In", (app,)),)),
    )
    placed = tuple(
        PlacedPod(
            draw(st.sampled_from((*NODES, "n4", "gone"))),
            {"pods": 1},
            avoids=tuple(draw(st.lists(avoided, max_size=2))),
            key=PodKey("ml", f"p{number}"),
        )
        for number in range(draw(st.integers(0, 8)))
    )
    return pod(labels={"app": "x"}), cluster(*nodes, placed=placed)


@given(guarded(), st.sets(st.integers(0, 7)))
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
