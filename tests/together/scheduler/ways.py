"""Ways of a pod that waits, carried out on the objects of a real cluster: then its scheduler places the pod.

One way in each cluster, of the kind that was carried out least so far, and for that pod alone. What is known
of GPUs is made up, as no node has any: all pods are idle, each node with MIG has a GPU with room, and shared
GPUs can have more replicas. A re-cut is thus a number of slices only.
"""

import copy
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Final

from exporter.waiting.answer import Answering
from exporter.waiting.gpu_facts import GpuFacts, IdlePod, MigGpu, SharedGpu
from exporter.waiting.objects import ClusterNode, Objects, WaitingPod
from exporter.waiting.way import Way
from exporter.waiting.ways_by_gpus import MIG
from tests.together.scheduler.clusters import PROBE, probe_pod
from tests.together.scheduler.control_plane import PATHS, Api, Json, Outcomes

_H100: Final = "NVIDIA H100 80GB HBM3"
_INSTANCES: Final = {"1g.10gb": 7, "2g.20gb": 3, "3g.40gb": 2, "4g.40gb": 1, "7g.80gb": 1}
_MERGE: Final = "application/merge-patch+json"


def carry_out(  # noqa: PLR0917 - a control plane, a cluster, and what has been done so far
    api: Api,
    outcomes: Outcomes,
    objects: Objects,
    unplaced: Sequence[tuple[Json, WaitingPod]],
    done: Counter[str],
    name: str,
) -> str:
    """Carry out one way for a pod that was not placed and is deleted.

    Return what disagrees, "" if the scheduler places the pod as the way says.
    """
    answering = Answering(objects, _facts(objects), 0.0)
    found = [
        (done[way.kind], number, given, way)
        for number, (given, pod) in enumerate(unplaced)
        if not _templates(given)
        for way in answering.answer(pod).ways
        if not way.unjudged
    ]
    if not found:
        return ""
    _, _, given, way = min(found, key=lambda each: each[:2])
    for key in way.pods:
        api.delete({"kind": "Pod", "metadata": key._asdict()})
    if patch := _patch(objects.nodes[way.node], way):
        path, body = patch
        api.ask("PATCH", path, body, _MERGE)
        _wait_for_nodes(api, outcomes, name)
    made = api.create(_again(given, way))
    node, message = outcomes.of(made["metadata"]["uid"])
    done[way.kind] += node == way.node
    return "" if node == way.node else f"after {way.what}: on {node!r}, {message}"


def _wait_for_nodes(api: Api, outcomes: Outcomes, name: str) -> None:
    """Wait until the scheduler has seen a later change of nodes: more room on that of the probe."""
    room = {"status": {"allocatable": {"pods": "1000"}, "capacity": {"pods": "1000"}}}
    api.ask("PATCH", f"{PATHS['Node']}/{name}-{PROBE}/status", room, _MERGE)
    for number in count():
        probe = probe_pod(name, number)
        del probe["spec"]["resourceClaims"]
        probe["metadata"]["name"] += "-again"
        made = api.create(probe)
        if outcomes.of(made["metadata"]["uid"])[0]:
            return
        api.delete(made)


def _templates(pod: Json) -> bool:
    """Return whether claims of a pod are made of templates, which a copy of it would not have."""
    return any("resourceClaimTemplateName" in each for each in pod["spec"].get("resourceClaims", ()))


def _facts(objects: Objects) -> GpuFacts:
    return GpuFacts(
        at=0.0,
        idle=tuple(IdlePod(each.key, each.node, 3600.0) for each in objects.placed),
        mig=tuple(
            MigGpu(node.name, "0", "GPU-0", _H100, (), held=True, offered={})
            for node in objects.nodes.values()
            if any(name.startswith(MIG) for name in node.allocatable)
        ),
        instances={(_H100, profile): count for profile, count in _INSTANCES.items()},
        shared=tuple(_shared(objects)),
    )


def _shared(objects: Objects) -> Iterator[SharedGpu]:
    for node in objects.nodes.values():
        for name in node.allocatable:
            if name.endswith(".shared"):
                yield SharedGpu(node.name, name, "time-slicing")


def _patch(node: ClusterNode, way: Way) -> tuple[str, Json] | None:
    """Return the change of a node that a way needs: its path, and a patch."""
    path = f"{PATHS['Node']}/{node.name}"
    if way.kind == "device":
        return path, {"spec": {"unschedulable": None}}
    if way.kind not in {"recut", "replicas"}:
        return None
    # "add 1 x 3g.40gb to …", "configure 1 more replica of nvidia.com/gpu on …"
    words = way.what.split()
    resource, more = (f"{MIG}{words[3]}" if way.kind == "recut" else words[5]), int(words[1])
    amount = str(node.allocatable.get(resource, 0) + more)
    return f"{path}/status", {"status": {"allocatable": {resource: amount}, "capacity": {resource: amount}}}


def _again(given: Json, way: Way) -> Json:
    """Return the same pod under another name, with what the way says that it asks for."""
    made = copy.deepcopy(given)
    made["metadata"]["name"] += "-again"
    containers = [each for kind in ("initContainers", "containers") for each in made["spec"].get(kind, ())]
    for amounts in (each for container in containers for each in container.get("resources", {}).values()):
        if way.instead_of in amounts:
            both = int(amounts.pop(way.instead_of)) + int(amounts.get(way.resource, 0))
            amounts[way.resource] = str(both)
    return made
