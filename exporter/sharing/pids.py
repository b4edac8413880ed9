"""Processes placed by the files of sharing systems, where their own cgroup does not tell.

A file lists pids by container. Such a list may be old, and a number of it another process's by now: it
stands in only for a process of which nothing else is known, and only where its pod is still here.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from exporter.model import ContainerFile, PodIdentity, ProcessPlace, SystemFiles, Workloads

LENGTH_OF_ID = 64


def with_pids(workloads: Workloads, files: Mapping[str, SystemFiles]) -> Workloads:
    """Place what has no known place by the one file that lists it; what is known stays as it is.

    Without a view of the host's processes nothing is placed: the pids would be somebody else's.
    """
    pods = workloads.pods or {}
    if not workloads.process_view:
        return workloads
    told = _told((file for system in files.values() for file in system.containers), pods)
    placed = {
        pid: places.pop()
        for pid, places in told.items()
        if len(places) == 1 and not _is_known(workloads.places.get(pid))
    }
    return replace(workloads, places={**workloads.places, **placed}) if placed else workloads


def _told(files: Iterable[ContainerFile], pods: Mapping[str, PodIdentity]) -> Mapping[int, set[ProcessPlace]]:
    told: dict[int, set[ProcessPlace]] = defaultdict(set)
    for file in files:
        if file.pod_uid in pods:
            container_id = _container_id(file, pods[file.pod_uid])
            for pid in file.pids or ():
                told[pid].add(
                    ProcessPlace(pid=pid, known=True, pod_uid=file.pod_uid, container_id=container_id)
                )
    return told


def _container_id(file: ContainerFile, pod: PodIdentity) -> str | None:
    """Return the whole id of a file's container, None where only its pod is known."""
    if len(file.container_id) == LENGTH_OF_ID:
        return file.container_id
    fitting = [
        container_id
        for container_id, name in pod.container_ids.items()
        if container_id.startswith(file.container_id) and file.container in ("", name)
    ]
    told = file.container or file.container_id
    return fitting[0] if told and len(fitting) == 1 else None


def _is_known(place: ProcessPlace | None) -> bool:
    return place is not None and place.known
