"""A verdict is that of the first filter that fails; "fits" is never said where something is not judged."""

from collections import Counter
from typing import Any

import pytest

from exporter.waiting.objects import (
    UNJUDGED,
    AvoidedPods,
    NodeTerm,
    PlacedPod,
    PodKey,
    Requirement,
    Taint,
    Toleration,
)
from exporter.waiting.verdict import ORDER, Judge
from tests.core.waiting.records import cluster, judged, node, pod, verdict

EVERYWHERE = (Toleration("", "Exists", "", ""),)
TAINT = Taint("gpu", "", "NoSchedule")


@pytest.mark.parametrize(
    ("filter_", "waiting", "there"),
    [
        ("", {}, {}),
        ("NodeUnschedulable", {}, {"cordoned": True}),
        ("", {"tolerations": EVERYWHERE}, {"cordoned": True}),
        ("TaintToleration", {}, {"taints": (TAINT,)}),
        ("TaintToleration", {}, {"taints": (Taint("gpu", "", "NoExecute"),)}),
        ("", {}, {"taints": (Taint("gpu", "", "PreferNoSchedule"),)}),
        ("", {"tolerations": EVERYWHERE}, {"taints": (TAINT,)}),
        ("NodeAffinity", {"selector": {"zone": "a"}}, {}),
        ("", {"selector": {"zone": "a"}}, {"labels": {"zone": "a"}}),
        ("NodeAffinity", {"affinity": ()}, {}),
        ("NodeAffinity", {"affinity": (NodeTerm((Requirement("zone", "Exists", ()),)),)}, {}),
        ("NodeResourcesFit", {"requests": {"cpu": 4001}}, {}),
        ("", {"requests": {"cpu": 4000, "pods": 1, "nvidia.com/gpu": 0}}, {}),
        ("NodeResourcesFit", {}, {"allocatable": {"cpu": 4000}}),
        # The first filter in the scheduler's order.
        ("NodeUnschedulable", {"selector": {"zone": "a"}}, {"cordoned": True, "taints": (TAINT,)}),
        ("TaintToleration", {"selector": {"zone": "a"}, "requests": {"cpu": 9999}}, {"taints": (TAINT,)}),
        ("NodeAffinity", {"selector": {"zone": "a"}, "requests": {"cpu": 9999}}, {}),
    ],
)
def test_the_first_filter_that_fails(filter_: str, waiting: dict[str, Any], there: dict[str, Any]) -> None:
    found = verdict(pod(**waiting), cluster(node(**there)))

    assert (found.answer, found.filter, found.first) == ("no" if filter_ else "fits", filter_, True)
    assert bool(found.reasons) is bool(filter_)


def test_each_resource_that_does_not_suffice_is_a_reason() -> None:
    """What placed pods request is not free; the scheduler counts each such resource."""
    there = PlacedPod("n1", {"cpu": 3500, "pods": 10, "nvidia.com/mig-3g.40gb": 1})
    gone = PlacedPod("n2", {"memory": 1 << 40})
    waiting = pod(requests={"cpu": 1000, "memory": 1, "nvidia.com/mig-3g.40gb": 1, "pods": 1})
    offer = {"cpu": 4000, "memory": 1 << 30, "pods": 10, "nvidia.com/mig-3g.40gb": 2}

    first = verdict(waiting, cluster(node(allocatable=offer), placed=(there, gone)))
    assert [reason.message for reason in first.reasons] == ["Insufficient cpu", "Too many pods"]
    assert [(each.resource, each.words) for each in first.reasons] == [
        ("cpu", "short of cpu"),
        ("pods", "short of pods"),
    ]
    verdicts = judged(waiting, cluster(node(), node("n2", allocatable=offer), placed=(there, gone)))
    assert verdicts.message() == (
        "0/2 nodes are available: 1 Insufficient cpu, 1 Insufficient memory,"
        " 1 Insufficient nvidia.com/mig-3g.40gb, 1 Too many pods."
    )


def test_the_message_counts_reasons_and_narrowed_nodes() -> None:
    named = NodeTerm(fields=(Requirement("metadata.name", "In", ("n1",)),))
    nodes = [node(name, cordoned=name == "n1") for name in ("n1", "n2", "n3")]

    verdicts = judged(pod(affinity=(named,)), cluster(*nodes))

    assert verdicts.message() == (
        "0/3 nodes are available: 1 node(s) were unschedulable,"
        " 2 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    )
    assert Counter(each.filter for each in verdicts.by_node.values()) == {
        "NodeUnschedulable": 1,
        "NodeAffinity": 2,
    }


def test_messages_without_single_nodes() -> None:
    names = [Requirement("metadata.name", "In", (name,)) for name in ("n1", "n2")]

    assert judged(pod(), cluster()).message() == "no nodes available to schedule pods"
    conflict = judged(pod(affinity=(NodeTerm(fields=tuple(names)),)), cluster(node()))
    assert conflict.message() == "0/1 nodes are available: pod affinity terms conflict."
    assert judged(pod(), cluster(node())).message() is None


@pytest.mark.parametrize("words", [*UNJUDGED, "something new"])
def test_what_is_not_judged_never_fits_and_hides_what_comes_later(words: str) -> None:
    waiting = pod(unjudged=(words,))

    assert verdict(waiting, cluster(node())).answer == "not judged"
    assert verdict(waiting, cluster(node())).unjudged == (words,)
    out = verdict(waiting, cluster(node(allocatable={})))
    assert (out.answer, out.filter) == ("no", "NodeResourcesFit")
    # Volumes and groups of pods may end the attempt before any node is looked at.
    own = UNJUDGED.get(words, "")
    early = own in {"", "GangScheduling", "VolumeBinding"}
    assert out.first is (ORDER.index(own) > ORDER.index("NodeResourcesFit") and not early)
    assert judged(waiting, cluster(node(allocatable={}))).message() == (
        "0/1 nodes are available: 1 Insufficient cpu, 1 Too many pods." if out.first else None
    )


def test_pods_that_preemption_makes_room_for_come_first() -> None:
    others = [pod(uid=str(priority), nominated="n1", priority=priority) for priority in (5, 4)]
    objects = cluster(node(allocatable={"cpu": 2500, "pods": 10}), waiting=tuple(others))

    assert verdict(pod(priority=6), objects).answer == "fits"
    assert verdict(pod(priority=5), objects).answer == "fits"
    assert verdict(pod(priority=4), objects).filter == "NodeResourcesFit"
    # A pod does not stand in its own way.
    assert verdict(others[1], objects).answer == "fits"


def test_a_pod_that_runs_keeps_others_out_of_its_part_of_the_cluster() -> None:
    labels = (Requirement("app", "In", ("train",)),)
    zone = {"zone": "a"}

    def found(labels_of_pod: dict[str, str], **avoided: Any) -> str:
        fields: dict[str, Any] = {"topology": "zone", "namespaces": frozenset({"ml"}), "labels": labels}
        guard = PlacedPod("n2", {"pods": 1}, avoids=(AvoidedPods(**(fields | avoided)),))
        objects = cluster(node(labels=zone), node("n2", labels=zone), placed=(guard,))
        verdicts = list(judged(pod(labels=labels_of_pod), objects).by_node.values())
        assert len({each.answer for each in verdicts}) == 1
        return verdicts[0].answer

    assert found({"app": "train"}) == "no"
    assert found({"app": "web"}) == "fits"
    assert found({"app": "train"}, topology="rack") == "fits"
    assert found({"app": "train"}, labels=None) == "fits"
    assert found({"app": "train"}, namespaces=frozenset({"web"})) == "fits"
    assert found({"app": "train"}, namespaces=frozenset(), everywhere=True) == "no"
    assert found({"app": "train"}, namespaces=frozenset(), everywhere=None) == "not judged"


def test_of_another_scheduler_only_facts_are_told() -> None:
    waiting = pod(scheduler="volcano")

    verdicts = judged(waiting, cluster(node(), node("n2", allocatable={}), node("n3", cordoned=True)))

    assert verdicts.remarks == ("scheduler volcano: its queues are not read here",)
    assert [each.answer for each in verdicts.by_node.values()] == ["not judged", "no", "not judged"]
    assert verdicts.message() is None


def test_a_gated_pod_fits_nowhere_but_its_reasons_are_told() -> None:
    verdicts = judged(pod(gates=("kueue.x-k8s.io/admission",)), cluster(node(), node("n2", cordoned=True)))

    assert verdicts.remarks == ("scheduling gates: kueue.x-k8s.io/admission",)
    assert [each.answer for each in verdicts.by_node.values()] == ["not judged", "no"]
    assert verdicts.message() is None


def test_amounts_that_could_not_be_read_are_not_judged() -> None:
    unread = PlacedPod("n1", {"pods": 1}, readable=False)

    assert verdict(pod(), cluster(node(), placed=(unread,))).answer == "not judged"
    assert verdict(pod(), cluster(node(allocatable={"pods": 1}, unread=("cpu",)))).answer == "not judged"
    assert verdict(pod(), cluster(node(allocatable={}, unread=("cpu",)))).answer == "no"


def test_a_resource_of_no_node_is_not_judged_where_device_classes_cannot_be_read() -> None:
    waiting = pod(requests={"nvidia.com/gpu": 1, "pods": 1}, key=PodKey("ml", "x"))

    assert verdict(waiting, cluster(node())).answer == "no"
    assert verdict(waiting, cluster(node(), classes=None)).answer == "not judged"


def test_pods_that_ask_for_the_same_share_verdicts_and_no_others_do() -> None:
    guard = PlacedPod("n1", {"pods": 1}, avoids=(AvoidedPods("zone", frozenset({"web"}), ()),))
    judge = Judge(cluster(node(labels={"zone": "a"}), placed=(guard,)))
    first, second = (judge.judge(pod(key=PodKey("ml", name), uid=name)) for name in ("a", "b"))

    assert first.groups is second.groups
    assert [each.pod.name for each in (first, second)] == ["a", "b"]
    for other, expected in (
        (pod(key=PodKey("web", "a")), "no"),
        (pod(requests={"cpu": 9000}), "no"),
        (pod(scheduler="volcano"), "not judged"),
        (pod(unjudged=("volumes",)), "not judged"),
        (pod(gates=("gate",)), "not judged"),
        (pod(claims=("c1",)), "no"),
    ):
        assert judge.judge(other).by_node["n1"].answer == expected
