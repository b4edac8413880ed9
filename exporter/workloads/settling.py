"""Processes placed by the objects of pods, where their cgroup alone does not tell whose they are.

The id of a container is the same in the object of its pod and in any cgroup, also where a kubelet makes no
cgroups for pods. And of pods in pods, which a kubelet in a pod starts, only those of the node's own kubelet
hold devices of the node.
"""

from collections.abc import Mapping

from exporter.model import PodIdentity, ProcessPlace, Workloads
from exporter.model.records import replace


def settled(workloads: Workloads, own_uid: str) -> Workloads:
    """Place the processes again of which the pods tell more than the cgroups; what is sure stays as it is.

    ``own_uid`` is that of the pod that reads: a container beside it, whose pod the path does not show, is
    taken for its own.
    """
    pods = workloads.pods or {}
    doubtful = [place for place in workloads.places.values() if _is_doubtful(place, pods, own_uid)]
    if not pods or not doubtful:
        return workloads
    owners = {container: pod.uid for pod in pods.values() for container in pod.container_ids}
    found = {place.pid: _settled(place, pods, owners, own_uid) for place in doubtful}
    return replace(workloads, places={**workloads.places, **found})


def _is_doubtful(place: ProcessPlace, pods: Mapping[str, PodIdentity], own_uid: str) -> bool:
    if place.container_id is None:
        return bool(place.outer)
    return place.pod_uid in (None, own_uid) or place.pod_uid not in pods


def _settled(
    place: ProcessPlace, pods: Mapping[str, PodIdentity], owners: Mapping[str, str], own_uid: str
) -> ProcessPlace:
    """Return the place in the pod that has the container, else in the innermost pod that is known."""
    owner = owners.get(place.container_id or "")
    if owner is not None:
        return replace(place, known=True, pod_uid=owner, outer=())
    if place.pod_uid == own_uid and own_uid in pods and pods[own_uid].container_ids:
        return ProcessPlace(pid=place.pid, known=False, command=place.command)
    for uid, container in place.outer if place.pod_uid not in pods else ():
        if uid in pods:
            return replace(place, pod_uid=uid, container_id=container, outer=())
    return place
