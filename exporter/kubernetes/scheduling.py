"""Nodes and pods of the API as the records of ``exporter.waiting``.

Objects are untrusted: what cannot be read costs a part of its own object, which then is not judged. Formats:
https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/ and
https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/node-v1/
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final, Literal

from exporter.kubernetes.collection import mapping, objects, text, texts
from exporter.kubernetes.pod_requests import read_amounts, read_requests
from exporter.waiting.objects import (
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

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_ENDED: Final = frozenset({"Succeeded", "Failed"})
# Volumes that have no say in where a pod goes.
_ANYWHERE: Final = frozenset(
    {"configMap", "downwardAPI", "emptyDir", "hostPath", "image", "name", "projected", "secret"}
)
_CONTAINERS: Final = ("initContainers", "containers")


def read_cluster_node(node: Mapping[str, Any]) -> ClusterNode | None:
    """Return a node, None if it has no name."""
    metadata, spec, status = (mapping(node, name) for name in ("metadata", "spec", "status"))
    allocatable = read_amounts(status, "allocatable")
    if not (name := text(metadata, "name")):
        return None
    return ClusterNode(
        name=name,
        labels=texts(metadata, "labels"),
        allocatable=allocatable.amounts,
        unread=allocatable.unread,
        taints=read_taints(spec),
        cordoned=spec.get("unschedulable") is True,
    )


def read_placed_pod(pod: Mapping[str, Any]) -> PlacedPod | None:
    """Return a pod that has a node and has not ended, else None."""
    metadata, spec = mapping(pod, "metadata"), mapping(pod, "spec")
    node = text(spec, "nodeName")
    if not node or text(mapping(pod, "status"), "phase") in _ENDED:
        return None
    requests = read_requests(pod, placed=True)
    return PlacedPod(
        node=node,
        requests=requests.amounts,
        ending="deletionTimestamp" in metadata,
        avoids=tuple(_avoided(mapping(spec, "affinity", "podAntiAffinity"), text(metadata, "namespace"))),
        readable=not requests.unread,
        key=PodKey(text(metadata, "namespace"), text(metadata, "name")),
        ends=_time(text(metadata, "deletionTimestamp")),
    )


def read_waiting_pod(pod: Mapping[str, Any]) -> WaitingPod | None:
    """Return a pod that the scheduler could not place, or that a scheduling gate holds back, else None."""
    metadata, spec, status = (mapping(pod, name) for name in ("metadata", "spec", "status"))
    key = PodKey(text(metadata, "namespace"), text(metadata, "name"))
    condition = _not_scheduled(status)
    if not all(key) or condition is None or text(spec, "nodeName") or "deletionTimestamp" in metadata:
        return None
    requests, created = read_requests(pod, placed=False), _time(text(metadata, "creationTimestamp"))
    priority = spec.get("priority")
    return WaitingPod(
        key=key,
        uid=text(metadata, "uid"),
        created=created,
        since=_time(text(condition, "lastTransitionTime")) or created,
        reason=_reason(condition),
        requests=requests.amounts,
        priority=priority if isinstance(priority, int) else 0,
        scheduler=text(spec, "schedulerName") or "default-scheduler",
        nominated=text(status, "nominatedNodeName"),
        gates=tuple(text(each, "name") for each in objects(spec, "schedulingGates")),
        selector=texts(spec, "nodeSelector"),
        affinity=read_terms(mapping(spec, "affinity", "nodeAffinity"), _REQUIRED),
        tolerations=read_tolerations(spec),
        claims=tuple(_claims(spec, status)),
        owner=_owner(metadata),
        labels=texts(metadata, "labels"),
        unjudged=(*_unjudged(spec), *(("unreadable requests",) if requests.unread else ())),
    )


def read_taints(parent: Mapping[str, Any]) -> tuple[Taint, ...]:
    """Return the taints of a node's specification, or of a device (DRA)."""
    return tuple(
        Taint(text(each, "key"), text(each, "value"), text(each, "effect"))
        for each in objects(parent, "taints")
    )


def read_tolerations(parent: Mapping[str, Any]) -> tuple[Toleration, ...]:
    """Return the tolerations of a pod's specification, or of a request of a claim."""
    return tuple(
        Toleration(*(text(each, name) for name in ("key", "operator", "value", "effect")))
        for each in objects(parent, "tolerations")
    )


def read_terms(parent: Mapping[str, Any], name: str) -> tuple[NodeTerm, ...] | None:
    """Return the terms of a node selector in a field, None without one."""
    if not isinstance(parent.get(name), dict):
        return None
    return tuple(
        NodeTerm(_requirements(term, "matchExpressions"), _requirements(term, "matchFields"))
        for term in objects(mapping(parent, name), "nodeSelectorTerms")
    )


def _requirements(parent: Mapping[str, Any], name: str) -> tuple[Requirement, ...]:
    return tuple(
        Requirement(text(each, "key"), text(each, "operator"), strings(each, "values"))
        for each in objects(parent, name)
    )


def strings(parent: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return the texts of a list; other values are left out."""
    items = parent.get(name)
    return tuple(each for each in items if isinstance(each, str)) if isinstance(items, list) else ()


def _not_scheduled(status: Mapping[str, Any]) -> Mapping[str, Any] | None:
    for each in objects(status, "conditions"):
        if text(each, "type") == "PodScheduled" and text(each, "status") == "False":
            return each
    return None


def _reason(condition: Mapping[str, Any]) -> Literal["Unschedulable", "SchedulingGated"]:
    return "SchedulingGated" if text(condition, "reason") == "SchedulingGated" else "Unschedulable"


def _time(stamp: str) -> float | None:
    """Return the Unix time of a time stamp, None if it is not one."""
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _claims(spec: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the claims of a pod, "" for one that was not made yet."""
    made = {text(each, "name"): each for each in objects(status, "resourceClaimStatuses")}
    for each in objects(spec, "resourceClaims"):
        if name := text(each, "resourceClaimName"):
            yield name
        elif (found := made.get(text(each, "name"))) is None:
            yield ""
        elif name := text(found, "resourceClaimName"):
            yield name
        # Else no claim is needed.


def _owner(metadata: Mapping[str, Any]) -> str:
    for each in objects(metadata, "ownerReferences"):
        if each.get("controller") is True:
            return f"{text(each, 'kind')} {text(each, 'name')}"
    return ""


def _unjudged(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield what of a pod is not judged."""
    containers = [each for name in _CONTAINERS for each in objects(spec, name)]
    network, users = spec.get("hostNetwork") is True, spec.get("hostUsers") is False
    if any(each.get("hostPort") for container in containers for each in objects(container, "ports")):
        yield "host ports"
    if any(not _ANYWHERE.issuperset(volume) for volume in objects(spec, "volumes")):
        yield "volumes"
    constraints = objects(spec, "topologySpreadConstraints")
    if any(text(each, "whenUnsatisfiable") != "ScheduleAnyway" for each in constraints):
        yield "topology spread"
    if any(mapping(spec, "affinity", kind).get(_REQUIRED) for kind in ("podAffinity", "podAntiAffinity")):
        yield "pod affinity"
    if any(map(_needs_features, containers)) or (network and users):
        yield "features of the node"
    if mapping(spec, "schedulingGroup") or mapping(spec, "workloadRef"):
        yield "pod group"


def _needs_features(container: Mapping[str, Any]) -> bool:
    """Return whether only nodes with a new feature of the kubelet can run a container."""
    mounts = objects(container, "volumeMounts")
    rules = objects(container, "restartPolicyRules")
    restarts = any(text(rule, "action") == "RestartAllContainers" for rule in rules)
    return restarts or any(mount.get("bindMountOptions") for mount in mounts)


def _avoided(anti_affinity: Mapping[str, Any], namespace: str) -> Iterator[AvoidedPods]:
    """Yield what required anti-affinity of a pod keeps out."""
    for term in objects(anti_affinity, _REQUIRED):
        listed, chosen = strings(term, "namespaces"), term.get("namespaceSelector")
        yield AvoidedPods(
            topology=text(term, "topologyKey"),
            namespaces=frozenset(listed or (() if chosen is not None else (namespace,))),
            labels=_label_selector(term),
            # An empty selector of namespaces is for all of them.
            everywhere=False if chosen is None else (None if chosen else True),
        )


def _label_selector(term: Mapping[str, Any]) -> tuple[Requirement, ...] | None:
    if not isinstance(term.get("labelSelector"), dict):
        return None
    selector = mapping(term, "labelSelector")
    equal = tuple(Requirement(key, "In", (value,)) for key, value in texts(selector, "matchLabels").items())
    return (*equal, *_requirements(selector, "matchExpressions"))
