"""Records of a cluster for tests: small ones, with what a test does not care about filled in."""

from collections.abc import Mapping
from typing import Any

from exporter.waiting.objects import (
    ClaimRequest,
    ClusterNode,
    DeviceName,
    Objects,
    OfferedDraDevice,
    PlacedPod,
    PodKey,
    ResourceClaim,
    ResourceSlice,
    Taint,
    WaitingPod,
)
from exporter.waiting.verdict import Judge, PodVerdicts, Verdict

DRIVER = "gpu.example.com"


def node(name: str = "n1", **more: Any) -> ClusterNode:
    """Return a node with room for pods."""
    fields: dict[str, Any] = {"labels": {}, "allocatable": {"cpu": 4000, "memory": 1 << 30, "pods": 10}}
    return ClusterNode(name=name, **(fields | more))


def pod(**more: Any) -> WaitingPod:
    """Return a pod that waits."""
    fields: dict[str, Any] = {
        "key": PodKey("ml", "train"),
        "uid": "uid-train",
        "created": 0.0,
        "since": 0.0,
        "reason": "Unschedulable",
        "requests": {"cpu": 1000, "pods": 1},
        "selector": {},
        "labels": {},
    }
    return WaitingPod(**(fields | more))


def cluster(*nodes: ClusterNode, placed: tuple[PlacedPod, ...] = (), **more: Any) -> Objects:
    """Return the objects of a cluster that serves DRA, without any of its objects."""
    fields: dict[str, Any] = {"waiting": (), "claims": {}, "slices": (), "classes": {}}
    return Objects(nodes={each.name: each for each in nodes}, placed=placed, **(fields | more))


def judged(waiting: WaitingPod, objects: Objects) -> PodVerdicts:
    """Return the verdicts of a pod."""
    return Judge(objects).judge(waiting)


def verdict(waiting: WaitingPod, objects: Objects) -> Verdict:
    """Return the verdict of a pod on the only node."""
    (only,) = judged(waiting, objects).by_node.values()
    return only


def device(
    name: str,
    *,
    unread: tuple[str, ...] = (),
    counters: Mapping[str, int] | None = None,
    taints: tuple[Taint, ...] = (),
    **attributes: str | int | bool,
) -> OfferedDraDevice:
    """Return a device with attributes of its driver."""
    return OfferedDraDevice(
        name=DeviceName(DRIVER, "n1", name),
        attributes={f"{DRIVER}/{key}": value for key, value in attributes.items()},
        capacity={},
        counters=counters or {},
        taints=taints,
        unread=unread,
    )


def piece(*devices: OfferedDraDevice, **more: Any) -> ResourceSlice:
    """Return the only slice of a pool, of node n1."""
    fields: dict[str, Any] = {
        "driver": DRIVER,
        "pool": "n1",
        "generation": 1,
        "slices_of_pool": 1,
        "node": "n1",
        "devices": devices,
    }
    return ResourceSlice(**(fields | more))


def request(name: str = "gpu", device_class: str = "gpu", **more: Any) -> ClaimRequest:
    """Return a request of a claim."""
    return ClaimRequest(name=name, device_class=device_class, **more)


def claim(*requests: ClaimRequest, name: str = "c1", **more: Any) -> dict[tuple[str, str], ResourceClaim]:
    """Return a claim by its key."""
    return {("ml", name): ResourceClaim(namespace="ml", name=name, requests=requests, **more)}
