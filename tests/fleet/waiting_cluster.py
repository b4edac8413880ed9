"""A small cluster with pods that wait, as in the guide: objects, and what is known of its GPUs."""

from typing import Any

from exporter.fleet.cluster_view import ClusterView
from exporter.fleet.pages.links import NodeUrl
from exporter.fleet.pages.waiting_routes import WaitingPages
from exporter.fleet.waiting import Waiting, answer_all, count
from exporter.fleet.waiting_watch import WaitingRead
from exporter.model.mig_geometry import Span
from exporter.waiting.gpu_facts import GpuFacts, IdlePod, MigGpu, SickDevice
from exporter.waiting.objects import ClusterNode, Objects, PlacedPod, PodKey, Taint, WaitingPod
from tests.fleet.shown import node as fleet_node

NOW = 1_700_000_000.0
GIB = 1 << 30
BIG, SMALL, WHOLE = "nvidia.com/mig-3g.40gb", "nvidia.com/mig-1g.10gb", "nvidia.com/gpu"
H100 = "NVIDIA H100 80GB HBM3"
INSTANCES = {(H100, "3g.40gb"): 2, (H100, "1g.10gb"): 7}


def node(name: str, zone: str = "a", **more: Any) -> ClusterNode:
    """Return a node of a zone, with 32 CPU and 256 GiB."""
    offers = {"cpu": 32_000, "memory": 256 * GIB, "pods": 110, **more.pop("offers", {})}
    return ClusterNode(name=name, labels={"zone": zone}, allocatable=offers, **more)


def holder(name: str, place: str, resource: str = BIG, count: int = 1, **more: Any) -> PlacedPod:
    """Return a pod that holds slices."""
    requests = {"cpu": 4000, "memory": 16 * GIB, "pods": 1, resource: count}
    return PlacedPod(node=place, requests=requests, key=PodKey("ml", name), **more)


def waits(name: str, minutes: float, resource: str = BIG, count: int = 1, **more: Any) -> WaitingPod:
    """Return a pod that has waited so many minutes."""
    fields: dict[str, Any] = {
        "key": PodKey("ml", name),
        "uid": name,
        "created": NOW - minutes * 60,
        "since": NOW - minutes * 60,
        "reason": "Unschedulable",
        "requests": {"cpu": 8000, "memory": 64 * GIB, "pods": 1, resource: count},
        "selector": {"zone": "a"},
        "labels": {},
        "owner": f"Job {name}",
    }
    return WaitingPod(**(fields | more))


def objects(**more: Any) -> Objects:
    """Return the objects: four nodes with slices that are held, others that are out."""
    nodes = [node(f"gpu-{number}", offers={BIG: 1, SMALL: 3}) for number in (2, 3, 7, 9)]
    nodes += [node(f"gpu-{number}", "b", offers={BIG: 2}) for number in range(20, 28)]
    nodes.append(node("gpu-30", offers={BIG: 2}, cordoned=True))
    nodes.append(node("gpu-31", offers={BIG: 2}, taints=(Taint("team", "vision", "NoSchedule"),)))
    nodes.append(node("cpu-1"))
    placed = [holder(f"train-{number}", f"gpu-{number}") for number in (2, 7, 9)]
    placed += [holder("notebook-7", "gpu-3"), holder("web-0", "gpu-30", count=2)]
    waiting = (
        waits("train-7", 42),
        waits("train-8", 30, priority=10),
        waits("gated-0", 5, gates=("quota.example.com/hold",), reason="SchedulingGated"),
        waits("batch-0", 200, scheduler="volcano"),
        waits("whole-0", 3, WHOLE),
        waits("tiny-0", 2, SMALL, 4),
        waits("volume-0", 7, unjudged=("volumes",), selector={}),
        WaitingPod(
            key=PodKey("web", "cpu-0"),
            uid="cpu-0",
            created=NOW - 60,
            since=NOW - 60,
            reason="Unschedulable",
            requests={"cpu": 64_000},
            selector={},
            labels={},
        ),
    )
    fields: dict[str, Any] = {"claims": {}, "slices": (), "classes": {}, "waiting": waiting}
    fields["placed"] = tuple(placed)
    fields["nodes"] = {each.name: each for each in nodes}
    return Objects(**(fields | more))


def facts(**more: Any) -> GpuFacts:
    """Return what is known of the GPUs, 12 seconds ago."""
    fields: dict[str, Any] = {
        "at": NOW - 12,
        "idle": (IdlePod(PodKey("ml", "notebook-7"), "gpu-3", 9.2 * 3600),),
        "mig": (
            MigGpu("gpu-7", "2", "GPU-7", H100, (Span(0, 4),), held=True, offered={BIG: 1}),
            MigGpu("gpu-9", "0", "GPU-9", H100, (Span(1, 1), Span(4, 1)), held=True, offered={SMALL: 2}),
        ),
        "instances": INSTANCES,
        "sick": (SickDevice("gpu-2", "5", "GPU-2", {BIG: 2}, "needs reset"),),
        "shared": (),
    }
    return GpuFacts(**(fields | more))


def view(known: Objects | None = None, **more: Any) -> ClusterView:
    """Return the cluster as the API server reports it, 3 seconds ago."""
    known = objects() if known is None else known
    fields: dict[str, Any] = {
        "source": "the Kubernetes API",
        "at": NOW,
        "objects": known,
        "waiting": known.waiting,
        "ages": {"pods": 3.0, "nodes": 4.0},
    }
    return ClusterView(**(fields | more))


def waiting_pods(**more: Any) -> Waiting:
    """Return the answers."""
    return answer_all(view(**more), facts(), NOW)


def waiting_read(waiting: Waiting | None = None, **more: Any) -> WaitingRead:
    """Return the state of a hub with these answers, or with those of the cluster."""
    waiting = waiting_pods() if waiting is None else waiting
    fields: dict[str, Any] = {"waiting": waiting, "counts": count(waiting), "error": "", "reads": 1}
    return WaitingRead(interval=30.0, **(fields | more))


def waiting_pages(read: WaitingRead | None = None, only: tuple[str, ...] = ()) -> WaitingPages:
    """Return the pages of a hub with these answers."""
    read = waiting_read() if read is None else read
    nodes = tuple(fleet_node(f"gpu-{number}") for number in (2, 3, 7, 9))
    return WaitingPages(lambda: read, lambda: nodes, NodeUrl(), only)
