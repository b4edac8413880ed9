"""The pods and containers of processes: of all in ``/proc``, by their cgroups, and corrections.

Corrections are by the pods' container ids, and by pid lists of sharing systems.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from exporter.model import ContainerFile, PodIdentity, ProcessPlace, SystemFiles, Workloads, only
from exporter.workloads.cgroups import parse_cgroup
from exporter.workloads.processes import pids_in, read_cgroup, read_stat

# The only process of a pod's sandbox, which keeps the pod's namespaces; "pod" on OpenShift.
SANDBOX_COMMANDS = frozenset({"pause", "pod"})
CONTAINER_ID_LENGTH = 64


class Placed(NamedTuple):
    """The places of processes by pid, and optionally all pods and containers with processes."""

    places: Mapping[int, ProcessPlace]
    running: "RunningContainers | None" = None  # None if it was not read
    gone: frozenset[int] = frozenset()  # as in Workloads


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningContainers:
    """The pods and containers with processes."""

    pods: frozenset[str]  # uids
    containers: Mapping[str, frozenset[str]]  # container ids by pod uid, without sandboxes


def read_running(proc_root: Path) -> RunningContainers:
    """Return the pods and containers of all processes under ``proc_root``; OSError if it cannot be listed.

    Of nested pods the outermost counts: it is the one that the node's kubelet knows.
    """
    pods: set[str] = set()
    pids: dict[tuple[str, str], list[str]] = defaultdict(list)
    known: dict[bytes, tuple[str, str] | None] = {}
    for pid in list(pids_in(proc_root)):
        text = read_cgroup(proc_root, pid)
        if text not in known:
            known[text] = _place(text)
        place = known[text]
        if place is not None:
            pods.add(place[0])
            pids[place].append(pid)
    containers: dict[str, set[str]] = defaultdict(set)
    for (uid, container_id), members in pids.items():
        if container_id and not _is_sandbox(proc_root, members):
            containers[uid].add(container_id)
    return RunningContainers(
        pods=frozenset(pods), containers={uid: frozenset(ids) for uid, ids in containers.items()}
    )


def is_container_unclear(places: Iterable[ProcessPlace], pods: Mapping[str, PodIdentity]) -> bool:
    """Return True if known container ids do not determine the container of some process in its pod."""
    for place in places:
        pod = pods.get(place.pod_uid or "")
        named = pod is not None and (place.container_id in pod.container_ids or len(pod.containers) == 1)
        if place.pod_uid is not None and not named:
            return True
    return False


def _place(text: bytes) -> tuple[str, str] | None:
    place = parse_cgroup(text.decode("utf-8", "replace"))
    if place.pod_uid is None:
        return None
    uid, container_id = place.outer[-1] if place.outer else (place.pod_uid, place.container_id)
    return uid, container_id or ""


def _is_sandbox(proc_root: Path, pids: list[str]) -> bool:
    stat = read_stat(str(proc_root), int(pids[0])) if len(pids) == 1 else None
    return stat is not None and stat.command in SANDBOX_COMMANDS


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
    return only(
        container_id
        for container_id, name in pod.container_ids.items()
        if container_id.startswith(file.container_id) and file.container in ("", name)
    )
