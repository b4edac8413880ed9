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
    found = named_by_elimination(in_pods, holding, pods)
    for uid, members in in_pods.items():
        pod = pods.get(uid) or (None if uid in unnamed else found.get(uid))
        if pod is not None:
            _give(owned, pod, members, holding)
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


def _give(
    owned: Owned,
    pod: PodIdentity,
    members: list[tuple[DeviceProcess, str]],
    holders: tuple[ContainerRef, ...],
) -> None:
    """Give the processes of one pod to its containers, as far as these can be told apart."""
    names = {process.pid: _container(pod, container_id) for process, container_id in members}
    if "" in names.values():
        held_by = [
            holder for holder in holders if (holder.namespace, holder.pod) == (pod.namespace, pod.name)
        ]
        if len(held_by) == 1:
            names = {pid: name or held_by[0].container for pid, name in names.items()}
        else:
            # Some of these could be anybody's in the pod: then no container of it has a sum of its own.
            names = dict.fromkeys(names, "")
    for process, _ in members:
        owner = ContainerRef(pod.namespace, pod.name, names[process.pid])
        owned.by_owner[owner].append(process)
        owned.pod_uids[owner] = pod.uid


def _container(pod: PodIdentity, container_id: str) -> str:
    if container_id in pod.container_ids:
        return pod.container_ids[container_id]
    return pod.containers[0] if len(pod.containers) == 1 else ""
