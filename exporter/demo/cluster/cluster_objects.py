"""The objects of the Kubernetes API of a cluster at a time, made of its nodes' scenarios and of what waits.

Formats: https://kubernetes.io/docs/reference/kubernetes-api/
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from uuid import NAMESPACE_DNS, uuid5

from exporter.demo.cluster.cluster_file import Cluster, NodeOfCluster, OpenClaim, PodToPlace
from exporter.demo.present import AGE, Present, present
from exporter.demo.scenario import PodDelete, Scenario
from exporter.demo.scenario.pods import Claim, Container, Pod

Json = dict[str, Any]
ByUid = Mapping[str, Json]
DRIVER: Final = "gpu.nvidia.com"
# A pod that is deleted has this long to end.
GRACE_SECONDS: Final = 300
_MOST_PODS: Final = "110"
# Scenarios have no CPU and memory of pods.
_WITH_DEVICES: Final = {"cpu": "4", "memory": "16Gi"}
_WITHOUT_DEVICES: Final = {"cpu": "500m", "memory": "1Gi"}
_GPUS_ONLY: Final = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"


def cluster_objects(cluster: Cluster, seconds: float, started: float) -> Mapping[str, ByUid]:
    """Return all objects by kind, such as ``pods``, and uid, so many seconds after a start (Unix time)."""
    now = [(node, present(node.scenario, seconds)) for node in cluster.nodes]
    manifests = {(each.namespace, each.name): each for each in cluster.pods}
    placed = [
        _placed_pod(node.scenario, pod, manifests.get((pod.namespace, pod.name)), seconds, started)
        for node, there in now
        for pod in there.pods
    ]
    names = {(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in placed}
    waiting = [
        _waiting_pod(cluster, each, started)
        for each in cluster.pods
        if each.at <= seconds and (each.namespace, each.name) not in names
    ]
    with_claims = [(node, there) for node, there in now if _has_claims(node.scenario)]
    allocated = [claim for _, there in with_claims for claim in _allocated_claims(there)]
    return {
        "nodes": _by_uid(_node(*each) for each in now),
        "pods": _by_uid([*placed, *waiting]),
        "resourceclaims": _by_uid([*allocated, *map(_open_claim, cluster.claims)]),
        "resourceslices": _by_uid(_slice(node) for node, _ in with_claims),
        "deviceclasses": _by_uid([_device_class()] if with_claims else []),
    }


def _by_uid(objects: Iterable[Json]) -> ByUid:
    return {each["metadata"]["uid"]: each for each in objects}


def _node(node: NodeOfCluster, there: Present) -> Json:
    """Return a node; devices that are unhealthy are not allocatable."""
    name = node.scenario.node.name
    offered = [(offer.resource, key) for offer in node.scenario.offers for key in offer.ids]
    devices = Counter(resource for resource, _ in offered)
    healthy = devices - Counter(resource for resource, _ in there.unhealthy.intersection(offered))
    counts = {resource: str(healthy[resource]) for resource in devices}
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **node.labels}
    spec: Json = {"taints": list(node.taints)}
    if node.cordoned:
        taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
        spec = {"taints": [*node.taints, taint], "unschedulable": True}
    return {
        "metadata": {"name": name, "uid": _uid("node", name), "labels": labels},
        "spec": spec,
        "status": {"allocatable": {"cpu": node.cpu, "memory": node.memory, "pods": _MOST_PODS, **counts}},
    }


def _placed_pod(
    scenario: Scenario, pod: Pod, manifest: PodToPlace | None, seconds: float, started: float
) -> Json:
    """Return a pod that runs on a node; one that has waited before has the spec of then."""
    metadata: Json = {
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
        "labels": dict(pod.labels),
    }
    since = AGE if manifest is None else manifest.waited - manifest.at
    metadata["creationTimestamp"] = _stamp(started - since)
    end = _end_of(scenario, pod)
    if end is not None and end - GRACE_SECONDS <= seconds:
        # The time at which it is gone at the latest.
        metadata |= {"deletionTimestamp": _stamp(started + end), "deletionGracePeriodSeconds": GRACE_SECONDS}
    spec = _spec(pod) if manifest is None else manifest.spec
    return {
        "metadata": metadata,
        "spec": {"schedulerName": "default-scheduler", **spec, "nodeName": scenario.node.name},
        "status": {"phase": pod.phase, "conditions": [{"type": "PodScheduled", "status": "True"}]},
    }


def _end_of(scenario: Scenario, pod: Pod) -> float | None:
    """Return when a pod ends for good, None if it does not."""
    for fault in scenario.faults:
        if isinstance(fault, PodDelete) and fault.pod == pod.full_name and fault.for_ is None:
            return fault.at
    return None


def _spec(pod: Pod) -> Json:
    claims = {claim.name for container in pod.containers for claim in container.claims}
    return {
        "containers": [_container(container) for container in pod.containers],
        "resourceClaims": [{"name": name, "resourceClaimName": name} for name in sorted(claims)],
    }


def _container(container: Container) -> Json:
    counts = {resource: str(len(ids)) for resource, ids in container.devices.items()}
    rest = _WITH_DEVICES if counts or container.claims else _WITHOUT_DEVICES
    return {"name": container.name, "resources": {"requests": {**rest, **counts}, "limits": counts}}


def _waiting_pod(cluster: Cluster, pod: PodToPlace, started: float) -> Json:
    since = _stamp(started + pod.at - pod.waited)
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "SchedulingGated" if pod.spec.get("schedulingGates") else "Unschedulable",
        "lastTransitionTime": since,
    }
    metadata = {"namespace": pod.namespace, "name": pod.name, "uid": _uid_of_pod(cluster, pod)}
    return {
        "metadata": {**metadata, "creationTimestamp": since},
        "spec": {"schedulerName": "default-scheduler", **pod.spec},
        "status": {"phase": "Pending", "conditions": [condition]},
    }


def _uid_of_pod(cluster: Cluster, waiting: PodToPlace) -> str:
    """Return the uid of a pod that waits, which stays when a node gets it."""
    for node in cluster.nodes:
        for _, pod in node.scenario.all_pods():
            if (pod.namespace, pod.name) == (waiting.namespace, waiting.name):
                return pod.uid
    return _uid("pod", waiting.namespace, waiting.name)


def _has_claims(scenario: Scenario) -> bool:
    return any(container.claims for _, container in scenario.all_containers())


def _allocated_claims(there: Present) -> Iterator[Json]:
    """Yield the claims that pods of a node hold their devices by."""
    users: dict[Claim, list[Pod]] = {}
    for pod in there.pods:
        for container in pod.containers:
            for claim in container.claims:
                users.setdefault(claim, []).append(pod)
    for claim, pods in users.items():
        result = {"request": "gpu", "driver": claim.driver, "pool": claim.pool, "device": claim.device}
        on_node = {"key": "metadata.name", "operator": "In", "values": [claim.pool]}
        yield {
            "metadata": {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid},
            "spec": {"devices": {"requests": [_request()]}},
            "status": {
                "allocation": {
                    "devices": {"results": [result]},
                    "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [on_node]}]},
                },
                "reservedFor": [{"resource": "pods", "name": pod.name, "uid": pod.uid} for pod in pods],
            },
        }


def _request() -> Json:
    return {"name": "gpu", "exactly": {"deviceClassName": DRIVER}}


def _open_claim(claim: OpenClaim) -> Json:
    uid = _uid("claim", claim.namespace, claim.name)
    metadata = {"namespace": claim.namespace, "name": claim.name, "uid": uid}
    return {"metadata": metadata, "spec": dict(claim.spec), "status": {}}


def _slice(node: NodeOfCluster) -> Json:
    """Return the GPUs of a node as NVIDIA's driver for DRA offers them."""
    name = node.scenario.node.name
    devices = [
        {
            "name": f"gpu-{index}",
            "attributes": {
                "type": {"string": "gpu"},
                "uuid": {"string": gpu.uuid},
                "productName": {"string": gpu.model},
            },
            "capacity": {"memory": {"value": str(gpu.memory_total)}},
        }
        for index, gpu in enumerate(node.scenario.gpus)
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    return {
        "metadata": {"name": f"{name}-{DRIVER}", "uid": _uid("slice", name)},
        "spec": {"driver": DRIVER, "pool": pool, "nodeName": name, "devices": devices},
    }


def _device_class() -> Json:
    return {
        "metadata": {"name": DRIVER, "uid": _uid("class", DRIVER)},
        "spec": {"selectors": [{"cel": {"expression": _GPUS_ONLY}}]},
    }


def _uid(*names: str) -> str:
    return str(uuid5(NAMESPACE_DNS, "/".join(names)))


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
