"""Nodes and pods of the API become records of what their scheduling depends on."""

from typing import Any

import pytest

from exporter.kubernetes.scheduling import read_cluster_node, read_placed_pod, read_waiting_pod
from exporter.waiting.objects import (
    UNJUDGED,
    AvoidedPods,
    ClusterNode,
    NodeTerm,
    PlacedPod,
    PodKey,
    Requirement,
    Taint,
    Toleration,
    WaitingPod,
)

Json = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
WAITS = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}


def waiting(spec: Json, status: Json | None = None, **metadata: Any) -> WaitingPod:
    """Return a pod that waits."""
    named = {"namespace": "ml", "name": "train", "uid": "u", **metadata}
    found = read_waiting_pod({"metadata": named, "spec": spec, "status": WAITS | (status or {})})
    assert found is not None
    return found


def test_a_node() -> None:
    node = {
        "metadata": {"name": "gpu-1", "labels": {"zone": "a", "odd": 1}},
        "spec": {"unschedulable": True, "taints": [{"key": "gpu", "effect": "NoSchedule"}, "odd"]},
        "status": {"allocatable": {"cpu": "3900m", "memory": "1Ki", "nvidia.com/gpu": "8", "pods": "odd"}},
    }

    assert read_cluster_node(node) == ClusterNode(
        name="gpu-1",
        labels={"zone": "a"},
        allocatable={"cpu": 3900, "memory": 1024, "nvidia.com/gpu": 8},
        unread=("pods",),
        taints=(Taint("gpu", "", "NoSchedule"),),
        cordoned=True,
    )
    assert read_cluster_node({"metadata": {}}) is None


def test_a_placed_pod() -> None:
    pod: Json = {
        "metadata": {"namespace": "ml", "name": "train", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"nodeName": "gpu-1"},
        "status": {"phase": "Running"},
    }

    assert read_placed_pod(pod) == PlacedPod(
        "gpu-1", {"pods": 1}, ending=True, key=PodKey("ml", "train"), ends=1767225600.0
    )
    for phase in ("Succeeded", "Failed"):
        assert read_placed_pod(pod | {"status": {"phase": phase}}) is None
    assert read_placed_pod(pod | {"spec": {}}) is None


@pytest.mark.parametrize(
    ("term", "namespaces", "everywhere"),
    [
        ({}, {"ml"}, False),
        ({"namespaces": ["web"]}, {"web"}, False),
        ({"namespaceSelector": {}}, set(), True),
        ({"namespaceSelector": {"matchLabels": {"a": "b"}}, "namespaces": ["web"]}, {"web"}, None),
    ],
)
def test_what_a_placed_pod_keeps_out(term: Json, namespaces: set[str], everywhere: bool | None) -> None:
    selector = {
        "matchLabels": {"app": "x"},
        "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["a"]}],
    }
    terms = [{"topologyKey": "zone", "labelSelector": selector, **term}, {"topologyKey": "rack"}]
    affinity = {"podAntiAffinity": {REQUIRED: terms}}
    pod = {"metadata": {"namespace": "ml"}, "spec": {"nodeName": "gpu-1", "affinity": affinity}}

    found = read_placed_pod(pod)

    labels = (Requirement("app", "In", ("x",)), Requirement("tier", "NotIn", ("a",)))
    assert found is not None
    assert found.avoids == (
        AvoidedPods("zone", frozenset(namespaces), labels, everywhere),
        AvoidedPods("rack", frozenset({"ml"}), None),
    )


def test_a_waiting_pod() -> None:
    terms = [
        {
            "matchExpressions": [{"key": "gpus", "operator": "Gt", "values": ["4"]}],
            "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gpu-1"]}],
        },
        {},
    ]
    spec = {
        "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
        "priority": 7,
        "nodeSelector": {"zone": "a"},
        "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}},
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "schedulingGates": [{"name": "gate"}],
        "resourceClaims": [
            {"name": "own", "resourceClaimName": "mine"},
            {"name": "made", "resourceClaimTemplateName": "t"},
            {"name": "unneeded", "resourceClaimTemplateName": "t"},
            {"name": "absent", "resourceClaimTemplateName": "t"},
        ],
    }
    made = [{"name": "made", "resourceClaimName": "train-made-x"}, {"name": "unneeded"}]
    condition = WAITS["conditions"][0] | {"lastTransitionTime": "2026-01-01T00:01:00Z"}

    found = waiting(
        spec,
        {"conditions": [condition], "nominatedNodeName": "gpu-9", "resourceClaimStatuses": made},
        creationTimestamp="2026-01-01T00:00:00Z",
        labels={"app": "x"},
        ownerReferences=[{"kind": "X", "name": "x"}, {"kind": "Job", "name": "train", "controller": True}],
    )

    assert found == WaitingPod(
        key=PodKey("ml", "train"),
        uid="u",
        created=1767225600.0,
        since=1767225660.0,
        reason="Unschedulable",
        requests={"cpu": 1000, "pods": 1},
        priority=7,
        nominated="gpu-9",
        gates=("gate",),
        selector={"zone": "a"},
        affinity=(
            NodeTerm((Requirement("gpus", "Gt", ("4",)),), (Requirement("metadata.name", "In", ("gpu-1",)),)),
            NodeTerm(),
        ),
        tolerations=(Toleration("gpu", "Exists", "", "NoSchedule"),),
        claims=("mine", "train-made-x", ""),
        owner="Job train",
        labels={"app": "x"},
    )


def test_only_pods_that_could_not_be_placed_wait() -> None:
    named: Json = {"namespace": "ml", "name": "train"}
    gated = {"conditions": [WAITS["conditions"][0] | {"reason": "SchedulingGated"}]}
    placed = {"conditions": [{"type": "PodScheduled", "status": "True"}]}

    assert waiting({}, gated).reason == "SchedulingGated"
    unknown = waiting({}, gated, creationTimestamp="yesterday")
    assert (unknown.created, unknown.since) == (None, None)
    for pod in (
        {"metadata": named},
        {"metadata": named, "status": placed},
        {"metadata": named, "spec": {"nodeName": "gpu-1"}, "status": WAITS},
        {"metadata": named | {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": WAITS},
        {"metadata": {"name": "train"}, "status": WAITS},
    ):
        assert read_waiting_pod(pod) is None


TERM = [{"topologyKey": "zone"}]


@pytest.mark.parametrize(
    ("words", "spec"),
    [
        ("host ports", {"containers": [{"ports": [{"containerPort": 80, "hostPort": 80}]}]}),
        ("volumes", {"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "b"}}]}),
        ("volumes", {"volumes": [{"name": "a", "something": {}}]}),
        ("topology spread", {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}),
        ("pod affinity", {"affinity": {"podAffinity": {REQUIRED: TERM}}}),
        ("pod affinity", {"affinity": {"podAntiAffinity": {REQUIRED: TERM}}}),
        ("features of the node", {"hostNetwork": True, "hostUsers": False}),
        (
            "features of the node",
            {"containers": [{"restartPolicyRules": [{"action": "RestartAllContainers"}]}]},
        ),
        ("features of the node", {"initContainers": [{"volumeMounts": [{"bindMountOptions": ["noexec"]}]}]}),
        ("pod group", {"schedulingGroup": {"podGroupName": "a"}}),
        ("unreadable requests", {"containers": [{"resources": {"requests": {"cpu": "all"}}}]}),
        ("", {"containers": [{"ports": [{"containerPort": 80}]}], "hostNetwork": True}),
        ("", {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "projected": {}}]}),
        ("", {"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}),
        ("", {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": TERM}}}),
    ],
)
def test_what_is_not_judged_is_named(words: str, spec: Json) -> None:
    assert waiting(spec).unjudged == ((words,) if words else ())
    assert words in {"", *UNJUDGED}
