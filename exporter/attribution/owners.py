"""Whose process is it: pids on a device → the container, the pod, nobody's, or not known."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from exporter.model import ContainerRef, DeviceProcess, PodIdentity, Workloads


@dataclass(slots=True)
class Owned:
    """The processes of one device, by owner.

    An owner with an empty ``container`` is a pod whose container is not known. ``outside`` run in no pod.
    ``unknown`` may be anybody's: their place could not be read, or they sit in a pod without a name.
    """

    by_owner: dict[ContainerRef, list[DeviceProcess]] = field(default_factory=lambda: defaultdict(list))
    pod_uids: dict[ContainerRef, str] = field(default_factory=dict)
    outside: list[DeviceProcess] = field(default_factory=list)
    unknown: list[DeviceProcess] = field(default_factory=list)


def owners(
    processes: Iterable[DeviceProcess],
    holders: Iterable[ContainerRef],
    workloads: Workloads,
    unnamed: Collection[str] = (),
) -> Owned:
    """Sort the processes of one device by owner; ``holders`` are the containers that hold the device.

    ``unnamed`` pods are not named by elimination.
    """
    holding = tuple(holders)
    owned = Owned()
    in_pods: dict[str, list[tuple[DeviceProcess, str]]] = defaultdict(list)
    for process in processes:
        place = workloads.places.get(process.pid)
        if place is None or not place.known:
            owned.unknown.append(process)
        elif place.pod_uid is None:
            owned.outside.append(process)
        else:
            in_pods[place.pod_uid].append((process, place.container_id or ""))
    pods = workloads.pods or {}
    by_elimination = named_by_elimination(in_pods, holding, pods)
    for uid, members in in_pods.items():
        pod = pods.get(uid) or (None if uid in unnamed else by_elimination.get(uid))
        if pod is not None:
            _give(owned, pod, members, holding, _containers_of(workloads, uid))
        else:
            owned.unknown.extend(process for process, _ in members)
    return owned


def named_by_elimination(
    in_pods: Iterable[str], holders: tuple[ContainerRef, ...], pods: Mapping[str, PodIdentity]
) -> dict[str, PodIdentity]:
    """Name the one pod without a name when it can only be the one holder whose uid is not known."""
    nameless = [uid for uid in in_pods if uid not in pods]
    if len(nameless) != 1:
        return {}
    named = {(pod.namespace, pod.name) for pod in pods.values()}
    candidates = {(holder.namespace, holder.pod) for holder in holders} - named
    if len(candidates) != 1:
        return {}
    namespace, name = candidates.pop()
    return {nameless[0]: PodIdentity(uid=nameless[0], namespace=namespace, name=name)}


def _containers_of(workloads: Workloads, uid: str) -> frozenset[str] | None:
    """Return the ids of a pod's containers with processes, None if that is unknown."""
    return None if workloads.running is None else workloads.running.get(uid, frozenset())


def _give(
    owned: Owned,
    pod: PodIdentity,
    members: list[tuple[DeviceProcess, str]],
    holders: tuple[ContainerRef, ...],
    running: frozenset[str] | None,
) -> None:
    """Give the processes of one pod to its containers, as far as these can be told apart."""
    names = {process.pid: _container(pod, container_id) for process, container_id in members}
    if "" in names.values():
        unnamed = {container_id for process, container_id in members if not names[process.pid]}
        held_by = [holder for holder in holders if holder.pod_name == pod.pod_name]
        if len(held_by) == 1 and _only_holder(pod, held_by[0].container, unnamed, running):
            names = {pid: name or held_by[0].container for pid, name in names.items()}
        else:
            # Some of these could be any container's of the pod: then no container of it has a sum of its own.
            names = dict.fromkeys(names, "")
    for process, _ in members:
        owner = ContainerRef(pod.namespace, pod.name, names[process.pid])
        owned.by_owner[owner].append(process)
        owned.pod_uids[owner] = pod.uid


def _only_holder(
    pod: PodIdentity, holder: str, unnamed: Collection[str], running: frozenset[str] | None
) -> bool:
    """Return True if the container with an unknown id can only be the holder: no other one can be meant.

    A container that was started again has another id than the one that is still known of it. Its old one has
    no processes then. Pod logs have no ids: there the holder is meant if it is the only container that runs.
    """
    if set(pod.containers) == {holder}:
        return True
    container_id, *others = unnamed
    if others or not container_id:
        return False
    known = {id_ for id_, name in pod.container_ids.items() if name == holder}
    if known and (running is None or known & running):
        return False
    if pod.details is None and running is not None and not running - {container_id}:
        return holder in pod.containers or not pod.containers
    return bool(pod.containers) and {*pod.container_ids.values(), holder} >= set(pod.containers)


def _container(pod: PodIdentity, container_id: str) -> str:
    if container_id in pod.container_ids:
        return pod.container_ids[container_id]
    return pod.containers[0] if len(pod.containers) == 1 else ""
