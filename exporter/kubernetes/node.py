"""The object of this node as the Kubernetes API has it: labels and annotations."""

from collections.abc import Mapping
from typing import Any, Final

from exporter.kubernetes.collection import Query
from exporter.kubernetes.values import mapping, texts
from exporter.model import NodeObject
from exporter.objects import kept_annotations

RIGHT: Final = (
    "let the service account list and watch nodes: deploy/components/kubernetes-api, or node-labels"
)


def object_of(node: str) -> Query:
    """Ask for a node's names, labels and annotations: the whole of it is a hundred times as large."""
    return Query(
        about=f"the labels and annotations of node {node}",
        call="list_node",
        selector=f"metadata.name={node}",
        form="PartialObjectMetadata",
        right=RIGHT,
    )


def read_node(node: Mapping[str, Any]) -> NodeObject:
    """Keep the labels and annotations."""
    metadata = mapping(node, "metadata")
    return NodeObject(
        labels=texts(metadata, "labels"), annotations=kept_annotations(texts(metadata, "annotations"))
    )
