"""Corrections to the places of processes: by the pods' container ids, and by pid lists of sharing systems."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from exporter.model import ContainerFile, PodIdentity, ProcessPlace, SystemFiles, Workloads

CONTAINER_ID_LENGTH = 64


def place_by_pods(workloads: Workloads, own_uid: str) -> Workloads:
    """Correct the places that cgroups leave open, by the container ids of the pods.

    ``own_uid`` is the uid of the exporter's own pod. A path that does not show its pod (``/../<id>``) was
    read as one of this pod; another pod may have the container.
    """
    pods = workloads.pods or {}
    doubtful = [place for place in workloads.places.values() if _is_doubtful(place, pods, own_uid)]
    if not pods or not doubtful:
        return workloads
    owners = {container: pod.uid for pod in pods.values() for container in pod.container_ids}
    corrected = {place.pid: _corrected(place, pods, owners, own_uid) for place in doubtful}
    return replace(workloads, places={**workloads.places, **corrected})


def place_by_files(workloads: Workloads, files: Mapping[str, SystemFiles]) -> Workloads:
    """Place processes without a known place by the files of sharing systems, if just one file lists the pid.

    Without a view of the host's processes nothing is placed: the pids would be those of other processes.
    """
    pods = workloads.pods or {}
    if not workloads.process_view:
        return workloads
    by_pid = _places_in_files((file for system in files.values() for file in system.containers), pods)
    placed = {
        pid: places.pop()
        for pid, places in by_pid.items()
        if len(places) == 1 and not (pid in workloads.places and workloads.places[pid].known)
    }
    return replace(workloads, places={**workloads.places, **placed}) if placed else workloads


def _is_doubtful(place: ProcessPlace, pods: Mapping[str, PodIdentity], own_uid: str) -> bool:
    if place.container_id is None:
        return bool(place.outer)
    return place.pod_uid in (None, own_uid) or place.pod_uid not in pods


def _corrected(
    place: ProcessPlace, pods: Mapping[str, PodIdentity], owners: Mapping[str, str], own_uid: str
) -> ProcessPlace:
    """Return the place in the pod that has the container, else in the innermost known pod."""
    owner = owners.get(place.container_id or "")
    if owner is not None:
        return replace(place, known=True, pod_uid=owner, outer=())
    if place.pod_uid == own_uid and own_uid in pods and pods[own_uid].container_ids:
        return ProcessPlace(pid=place.pid, known=False, command=place.command)
    for uid, container in place.outer if place.pod_uid not in pods else ():
        if uid in pods:
            return replace(place, pod_uid=uid, container_id=container, outer=())
    return place


def _places_in_files(
    files: Iterable[ContainerFile], pods: Mapping[str, PodIdentity]
) -> Mapping[int, set[ProcessPlace]]:
    """Return the places of each pid that files of known pods list."""
    places: dict[int, set[ProcessPlace]] = defaultdict(set)
    for file in files:
        if file.pod_uid in pods:
            container_id = _container_id(file, pods[file.pod_uid])
            for pid in file.pids or ():
                place = ProcessPlace(pid=pid, known=True, pod_uid=file.pod_uid, container_id=container_id)
                places[pid].add(place)
    return places


def _container_id(file: ContainerFile, pod: PodIdentity) -> str | None:
    """Return the full id of a file's container, None if only its pod is known."""
    if len(file.container_id) == CONTAINER_ID_LENGTH:
        return file.container_id
    if not (file.container or file.container_id):
        return None
    fitting = [
        container_id
        for container_id, name in pod.container_ids.items()
        if container_id.startswith(file.container_id) and file.container in ("", name)
    ]
    return fitting[0] if len(fitting) == 1 else None
