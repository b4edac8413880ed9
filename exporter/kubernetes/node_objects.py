"""Objects of the Kubernetes API as typed values: the pods of a node, and the node."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from exporter.kubernetes.collection import Query, mapping, objects, text, texts
from exporter.model import ContainerSpec, NodeObject, PodDetails, PodIdentity
from exporter.model.kubelet import extended_resources, kept_annotations

MIRROR: Final = "kubernetes.io/config.mirror"
HASH: Final = "kubernetes.io/config.hash"
PODS_RIGHT: Final = "let the service account list and watch pods: deploy/components/kubernetes-api"
_STATUSES: Final = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")


class WatchedPods(NamedTuple):
    """The watched pods of a node."""

    pods: Mapping[str, PodIdentity]
    """By the uid under which a pod runs."""
    live: bool
    """Whether a watch is open, so that they are current."""


def pods_of(node: str) -> Query:
    """Return the query for the pods of a node."""
    return Query(
        about=f"the pods of node {node}",
        call="list_pod_for_all_namespaces",
        selector=f"spec.nodeName={node}",
        right=PODS_RIGHT,
        cached=True,
    )


def read_pod(pod: Mapping[str, Any]) -> PodIdentity | None:
    """Return the identity of a pod, its annotations, labels and limits; None if it has no name."""
    metadata, status = mapping(pod, "metadata"), mapping(pod, "status")
    annotations = texts(metadata, "annotations")
    uid = (annotations.get(HASH) if annotations.get(MIRROR) else "") or text(metadata, "uid")
    namespace, name = text(metadata, "namespace"), text(metadata, "name")
    if not (uid and namespace and name):
        return None
    containers = [item for name in _STATUSES for item in objects(status, name) if text(item, "name")]
    return PodIdentity(
        uid=uid,
        namespace=namespace,
        name=name,
        containers=tuple(text(item, "name") for item in containers),
        # ``containerd://<64 hex>``: the name of the cgroup has the digits only.
        container_ids={
            text(item, "containerID").rpartition("://")[2]: text(item, "name")
            for item in containers
            if text(item, "containerID")
        },
        details=PodDetails(
            labels=texts(metadata, "labels"),
            annotations=kept_annotations(annotations),
            containers=_specs(mapping(pod, "spec")),
            phase=text(status, "phase"),
        ),
    )


def by_uid(pods: Mapping[str, PodIdentity]) -> dict[str, PodIdentity]:
    """Return the pods by the uid under which they run; a mirror pod does not replace another pod."""
    mirrors = {pod.uid: pod for uid, pod in pods.items() if pod.uid != uid}
    return mirrors | {uid: pod for uid, pod in pods.items() if pod.uid == uid}


def _specs(spec: Mapping[str, Any]) -> tuple[ContainerSpec, ...]:
    kinds = (("initContainers", True), ("containers", False))
    return tuple(
        ContainerSpec(
            name=text(container, "name"),
            init=init,
            limits=extended_resources(texts(mapping(container, "resources"), "limits")),
        )
        for kind, init in kinds
        for container in objects(spec, kind)
    )


NODE_RIGHT: Final = (
    "let the service account list and watch nodes: deploy/components/kubernetes-api, or node-labels"
)


def object_of(node: str) -> Query:
    """Return the query for a node."""
    return Query(
        about=f"the labels, annotations and devices of node {node}",
        call="list_node",
        selector=f"metadata.name={node}",
        right=NODE_RIGHT,
    )


def read_node(node: Mapping[str, Any]) -> NodeObject:
    """Return the labels and annotations of a node, and its counts of extended resources."""
    metadata, status = mapping(node, "metadata"), mapping(node, "status")
    return NodeObject(
        labels=texts(metadata, "labels"),
        annotations=kept_annotations(texts(metadata, "annotations")),
        capacity=extended_resources(texts(status, "capacity")),
        allocatable=extended_resources(texts(status, "allocatable")),
    )
