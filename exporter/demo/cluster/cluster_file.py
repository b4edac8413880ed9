"""The cluster as it is written in ``cluster.json`` and the scenarios of its nodes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from exporter.demo.scenario import Scenario
from exporter.demo.scenario.catalog import load_file

_FOLDER: Final = Path(__file__).parent
_NODES: Final = _FOLDER / "nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOfCluster:
    """A node, and what its scenario does not have."""

    scenario: Scenario
    cpu: str  # quantities as in Kubernetes
    memory: str
    labels: Mapping[str, str]
    taints: tuple[Mapping[str, str], ...]
    cordoned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PodToPlace:
    """A pod that waits, until a node has a pod of its name."""

    namespace: str
    name: str
    spec: Mapping[str, Any]  # as in Kubernetes
    at: float  # seconds after the start at which it appears
    waited: float  # seconds for which it has waited then


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenClaim:
    """A resource claim without devices."""

    namespace: str
    name: str
    spec: Mapping[str, Any]  # as in Kubernetes


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """All nodes, and what waits for them."""

    nodes: tuple[NodeOfCluster, ...]
    pods: tuple[PodToPlace, ...]
    claims: tuple[OpenClaim, ...]


def load_cluster() -> Cluster:
    """Return the cluster."""
    document = json.loads((_FOLDER / "cluster.json").read_text("utf-8"))
    return Cluster(
        nodes=tuple(map(_node, document["nodes"])),
        pods=tuple(PodToPlace(**({"at": 0.0} | pod)) for pod in document["pods"]),
        claims=tuple(OpenClaim(**claim) for claim in document["claims"]),
    )


def node_files() -> tuple[Path, ...]:
    """Return the scenarios of the nodes, in the order of the cluster."""
    document = json.loads((_FOLDER / "cluster.json").read_text("utf-8"))
    return tuple(_NODES / f"{node['name']}.json" for node in document["nodes"])


def _node(node: Mapping[str, Any]) -> NodeOfCluster:
    return NodeOfCluster(
        scenario=load_file(_NODES / f"{node['name']}.json"),
        cpu=node["cpu"],
        memory=node["memory"],
        labels=node.get("labels", {}),
        taints=tuple(node.get("taints", ())),
        cordoned=node.get("cordoned", False),
    )
