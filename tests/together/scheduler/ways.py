"""Ways of a pod that waits, carried out on the objects of a real cluster: then its scheduler places the pod.

One way in each cluster, of the kind that was carried out least so far, and for that pod alone, which then
also asks for the node of the way. What is known of GPUs is made up, as no node has any: all pods are idle,
each node with MIG has a GPU with room, and shared GPUs can have more replicas. A re-cut is thus a number of
slices only. No controller of claims runs: what it does once the users of a claim are gone is done here.
"""

import copy
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Final

from exporter.kubernetes.pod_requests import read_requests
from exporter.waiting.answer import Answering
from exporter.waiting.gpu_facts import GpuFacts, IdlePod, MigGpu, SharedGpu
from exporter.waiting.objects import ClusterNode, Objects, WaitingPod
from exporter.waiting.way import Way
from exporter.waiting.ways_by_gpus import MIG
from tests.together.scheduler.clusters import PROBE, probe_claim, probe_pod
from tests.together.scheduler.control_plane import Api, Json, Outcomes
from tests.together.scheduler.pods import REQUIRED

_H100: Final = "NVIDIA H100 80GB HBM3"
_INSTANCES: Final = {"1g.10gb": 7, "2g.20gb": 3, "3g.40gb": 2, "4g.40gb": 1, "7g.80gb": 1}
REQUEST: Final = " in request "


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
        (done[_sort(given, way)], number, given, way)
        for number, (given, pod) in enumerate(unplaced)
        if not _templates(given)
        for way in answering.answer(pod).ways
        # What is on the probe's node changes while the scheduler is waited for.
        if not way.unjudged and way.node != f"{name}-{PROBE}"
    ]
    if not found:
        return ""
    _, _, given, way = min(found, key=lambda each: each[:2])
    _do(api, objects, way)
    if REQUEST in way.what:
        _make_claim(api, given, way)
    _wait_for_all(api, outcomes, name)
    pod = api.create(_pinned(_again(given, way), way.node))
    node, message = outcomes.of(pod["metadata"]["uid"])
    done[_sort(given, way)] += node == way.node
    return "" if node == way.node else f"after {way.what}: on {node!r}, {message}"


def _sort(given: Json, way: Way) -> str:
    """Return the kind of a way, and whether it helps a pod that has claims."""
    return f"{way.kind} for claims" if "resourceClaims" in given["spec"] else way.kind


def _do(api: Api, objects: Objects, way: Way) -> None:
    """Carry out a way, as far as it is not about the pod itself."""
    for key in way.pods:
        api.delete({"kind": "Pod", "metadata": key._asdict()})
    gone = {(key.namespace, key.name) for key in way.pods}
    for claim in api.items("ResourceClaim"):
        users = {
            (claim["metadata"]["namespace"], each["name"]) for each in claim["status"].get("reservedFor", ())
        }
        if users and users <= gone:
            api.release({"kind": "ResourceClaim", **claim})
    if way.what.startswith("repair "):
        _untaint(api, way)
    elif way.kind == "device":
        node = {"kind": "Node", "metadata": {"name": way.node}}
        api.patch(node, {"spec": {"unschedulable": None}})
    elif way.kind in {"recut", "replicas"}:
        _offer_more(api, objects.nodes[way.node], way)


def _untaint(api: Api, way: Way) -> None:
    """Remove the taints of devices: "repair gpu-0 and gpu-1 of NODE: …"."""
    repaired = way.what.removeprefix("repair ").partition(" of ")[0].replace(" and ", ", ").split(", ")
    for piece in api.items("ResourceSlice"):
        devices = piece["spec"].get("devices", [])
        if piece["spec"].get("nodeName") == way.node and devices:
            for device in devices:
                if device["name"] in repaired:
                    device.pop("taints", None)
            api.patch({"kind": "ResourceSlice", **piece}, {"spec": {"devices": devices}})


def _offer_more(api: Api, node: ClusterNode, way: Way) -> None:
    """Let a node have more: "add 1 x 3g.40gb to …", "configure 1 more replica of nvidia.com/gpu on …"."""
    words = way.what.split()
    resource, more = (f"{MIG}{words[3]}" if way.kind == "recut" else words[5]), int(words[1])
    amount = str(node.allocatable.get(resource, 0) + more)
    change = {"status": {"allocatable": {resource: amount}, "capacity": {resource: amount}}}
    api.patch({"kind": "Node", "metadata": {"name": node.name}}, change, "/status")


def _wait_for_all(api: Api, outcomes: Outcomes, name: str) -> None:
    """Wait until the scheduler has seen later changes of nodes, slices and claims: more for the probe."""
    probe = f"{name}-{PROBE}"
    room = {"status": {"allocatable": {"pods": "1000"}, "capacity": {"pods": "1000"}}}
    api.patch({"kind": "Node", "metadata": {"name": probe}}, room, "/status")
    more = {"spec": {"devices": [{"name": "d"}, {"name": "e"}]}}
    api.patch({"kind": "ResourceSlice", "metadata": {"name": probe}}, more)
    claim = probe_claim(name)
    claim["metadata"]["name"] += "-again"
    api.create(claim)
    for number in count():
        pod = probe_pod(name, number)
        pod["metadata"]["name"] += "-again"
        pod["spec"]["resourceClaims"][0]["resourceClaimName"] += "-again"
        made = api.create(pod)
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


def _again(given: Json, way: Way) -> Json:
    """Return the same pod under another name, with what the way says that it asks for."""
    made = copy.deepcopy(given)
    made["metadata"]["name"] += "-again"
    if REQUEST in way.what:
        made["spec"]["resourceClaims"][0]["resourceClaimName"] += "-again"
        return made
    containers = [each for kind in ("initContainers", "containers") for each in made["spec"].get(kind, ())]
    for amounts in (each for container in containers for each in container.get("resources", {}).values()):
        if way.instead_of in amounts:
            both = int(amounts.pop(way.instead_of)) + int(amounts.get(way.resource, 0))
            amounts[way.resource] = str(both)
    # Else the scheduler would be asked about another pod than the way is about.
    assert not way.instead_of or not read_requests(made, placed=False).amounts.get(way.instead_of), way
    return made


def _pinned(pod: Json, node: str) -> Json:
    """Return a pod that also asks for a node by name, as others may suit it too."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    affinity = pod["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})
    terms = affinity.setdefault(REQUIRED, {"nodeSelectorTerms": [{"matchFields": []}]})["nodeSelectorTerms"]
    for term in terms:
        # An empty term matches no node, and is to stay empty.
        if term:
            term["matchFields"] = [*term.get("matchFields", ()), field]
    return pod


def _make_claim(api: Api, given: Json, way: Way) -> None:
    """Make a claim as a way says: "… in request r0, without its selectors: …"."""
    request_name = re.split("[,: ]", way.what.partition(REQUEST)[2])[0]
    (claim,) = [
        each
        for each in api.items("ResourceClaim")
        if each["metadata"]["name"] == given["spec"]["resourceClaims"][0]["resourceClaimName"]
    ]
    spec = claim["spec"]
    (exactly,) = [each["exactly"] for each in spec["devices"]["requests"] if each["name"] == request_name]
    assert exactly["deviceClassName"] == way.instead_of, way
    exactly["deviceClassName"] = way.resource
    if ", without its selectors: " in way.what:
        exactly.pop("selectors")
    metadata = {"name": f"{claim['metadata']['name']}-again", "namespace": claim["metadata"]["namespace"]}
    api.create(
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec}
    )
