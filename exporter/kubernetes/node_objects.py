"""Objects of the Kubernetes API: the pods of a node, and the node itself, as typed values."""

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
    """The pods by the uid under which they run; ``live`` says that they are as of now."""

    pods: Mapping[str, PodIdentity]
    live: bool


def pods_of(node: str) -> Query:
    """Ask for the pods of a node."""
    return Query(
        about=f"the pods of node {node}",
        call="list_pod_for_all_namespaces",
        selector=f"spec.nodeName={node}",
        right=PODS_RIGHT,
        cached=True,
    )


def read_pod(pod: Mapping[str, Any]) -> PodIdentity | None:
    """Keep what names a pod and what sharing systems say of it; None where it has no name."""
    metadata, status = mapping(pod, "metadata"), mapping(pod, "status")
    annotations = texts(metadata, "annotations")
    uid = (annotations.get(HASH) if annotations.get(MIRROR) else "") or text(metadata, "uid")
    namespace, name = text(metadata, "namespace"), text(metadata, "name")
    if not (uid and namespace and name):
        return None
    containers = [each for statuses in _STATUSES for each in objects(status, statuses) if text(each, "name")]
    return PodIdentity(
        uid=uid,
        namespace=namespace,
        name=name,
        containers=tuple(text(each, "name") for each in containers),
        container_ids={
            _bare(text(each, "containerID")): text(each, "name")
            for each in containers
            if text(each, "containerID")
        },
        details=PodDetails(
            labels=texts(metadata, "labels"),
            annotations=kept_annotations(annotations),
            containers=_specs(mapping(pod, "spec")),
            phase=text(status, "phase"),
        ),
    )


def by_uid(pods: Mapping[str, PodIdentity]) -> dict[str, PodIdentity]:
    """Index the API's objects by the uid under which a pod runs; a mirror takes no other pod's place."""
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


def _bare(container_id: str) -> str:
    """Turn ``containerd://<64 hex>`` into the 64 hex digits that a cgroup's name holds."""
    return container_id.rpartition("://")[2]


NODE_RIGHT: Final = (
    "let the service account list and watch nodes: deploy/components/kubernetes-api, or node-labels"
)


def object_of(node: str) -> Query:
    """Ask for a node."""
    return Query(
        about=f"the labels, annotations and devices of node {node}",
        call="list_node",
        selector=f"metadata.name={node}",
        right=NODE_RIGHT,
    )


def read_node(node: Mapping[str, Any]) -> NodeObject:
    """Keep labels, annotations, and of the status the numbers of extended resources."""
    metadata, status = mapping(node, "metadata"), mapping(node, "status")
    return NodeObject(
        labels=texts(metadata, "labels"),
        annotations=kept_annotations(texts(metadata, "annotations")),
        capacity=extended_resources(texts(status, "capacity")),
        allocatable=extended_resources(texts(status, "allocatable")),
    )
