"""The object of this node as the Kubernetes API has it: labels, annotations and extended resources."""

from collections.abc import Mapping
from typing import Any, Final

from exporter.kubernetes.collection import Query
from exporter.kubernetes.values import mapping, texts
from exporter.model import NodeObject
from exporter.objects import extended_resources, kept_annotations

RIGHT: Final = (
    "let the service account list and watch nodes: deploy/components/kubernetes-api, or node-labels"
)


def object_of(node: str) -> Query:
    """Ask for a node."""
    return Query(
        about=f"the labels, annotations and devices of node {node}",
        call="list_node",
        selector=f"metadata.name={node}",
        right=RIGHT,
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
