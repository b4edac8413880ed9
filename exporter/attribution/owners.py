"""The owner of each process on a device: a container, a pod, none, or unknown.

Also the answers that name no owner: a process list that must be incomplete, names that contradict each other.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from exporter.attribution.holdings_index import HoldingsIndex
from exporter.model import (
    ContainerRef,
    DeviceKey,
    DeviceProcess,
    GpuReading,
    Memory,
    MigReading,
    PodIdentity,
    Workloads,
    only,
)

# The driver's own memory: a fixed part, and tables that grow with the memory of the device.
OVERHEAD_BYTES, OVERHEAD_SHARE = 1 << 30, 1 / 32


@dataclass(slots=True)
class Owned:
    """The processes of one device, by owner."""

    # An empty ``container`` means a pod with processes whose container is unknown.
    by_owner: dict[ContainerRef, list[DeviceProcess]] = field(default_factory=lambda: defaultdict(list))
    pod_uids: dict[ContainerRef, str] = field(default_factory=dict)
    outside: list[DeviceProcess] = field(default_factory=list)  # processes that run in no pod
    # Processes with an unreadable place, or in a pod without a known name: any container may own them.
    unknown: list[DeviceProcess] = field(default_factory=list)


def owners(
    processes: Iterable[DeviceProcess],
    holders: Iterable[ContainerRef],
    workloads: Workloads,
    unnamed: Collection[str] = (),
) -> Owned:
    """Return the processes of one device by owner.

    ``holders`` are the containers that hold the device. Pods with a uid in ``unnamed`` are not named by
    elimination.
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
    listed = [uid for uid, members in in_pods.items() if any(process.kinds for process, _ in members)]
    by_elimination = named_by_elimination(listed, holding, pods)
    for uid, members in in_pods.items():
        pod = pods.get(uid) or (None if uid in unnamed else by_elimination.get(uid))
        if pod is not None:
            # Container ids of the pod that have processes; None if that is unknown.
            running = None if workloads.running is None else workloads.running.get(uid, frozenset())
            _assign(owned, pod, members, holding, running)
        else:
            owned.unknown.extend(process for process, _ in members)
    return owned


def named_by_elimination(
    in_pods: Iterable[str], holders: tuple[ContainerRef, ...], pods: Mapping[str, PodIdentity]
) -> dict[str, PodIdentity]:
    """Return the name of the only pod without one, by uid, if only one holder's uid is unknown; else {}."""
    nameless = [uid for uid in in_pods if uid not in pods]
    if len(nameless) != 1:
        return {}
    named = {(pod.namespace, pod.name) for pod in pods.values()}
    candidates = {(holder.namespace, holder.pod) for holder in holders} - named
    if len(candidates) != 1:
        return {}
    namespace, name = candidates.pop()
    return {nameless[0]: PodIdentity(uid=nameless[0], namespace=namespace, name=name)}


def _assign(
    owned: Owned,
    pod: PodIdentity,
    members: list[tuple[DeviceProcess, str]],
    holders: tuple[ContainerRef, ...],
    running: frozenset[str] | None,
) -> None:
    """Assign the processes of one pod to its containers, or to the pod if a container is unknown."""
    names = {process.pid: _container(pod, container_id) for process, container_id in members}
    if "" in names.values():
        unnamed = {container_id for process, container_id in members if not names[process.pid]}
        held_by = [holder for holder in holders if holder.pod_name == pod.pod_name]
        if len(held_by) == 1 and _only_holder(pod, held_by[0].container, unnamed, running):
            names = {pid: name or held_by[0].container for pid, name in names.items()}
        else:
            # Any container may own the unnamed processes, so that no container of the pod has a known sum.
            names = dict.fromkeys(names, "")
    for process, _ in members:
        owner = ContainerRef(pod.namespace, pod.name, names[process.pid])
        owned.by_owner[owner].append(process)
        owned.pod_uids[owner] = pod.uid


def _only_holder(
    pod: PodIdentity, holder: str, unnamed: Collection[str], running: frozenset[str] | None
) -> bool:
    """Return True if the container with an unknown id can only be the holder.

    A restarted container has a new id, while the known one is its old id, which has no processes. Pod logs
    have no ids: then the holder is meant if only one container runs.
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
    return only(pod.containers) or ""


def ambiguous(
    in_pods: Iterable[tuple[DeviceKey, Collection[str]]],
    held: HoldingsIndex,
    pods: Mapping[str, PodIdentity],
) -> frozenset[str]:
    """Return the uids of pods that must not be named by elimination (rule 4).

    ``in_pods`` has the uids of the pods that are found on each device. A pod has one uid and one name. If
    elimination on different devices gives a uid two names, or two uids the same name, one of the pods uses a
    device that it does not hold.
    """
    names: dict[str, set[tuple[str, str]]] = defaultdict(set)
    uids: dict[tuple[str, str], set[str]] = defaultdict(set)
    for key, found in in_pods:
        for uid, pod in named_by_elimination(found, tuple(held.on(key)), pods).items():
            names[uid].add((pod.namespace, pod.name))
            uids[pod.namespace, pod.name].add(uid)
    return frozenset(
        uid
        for uid, candidates in names.items()
        if len(candidates) > 1 or any(len(uids[name]) > 1 for name in candidates)
    )


def processes_in_pods(
    gpus: Iterable[GpuReading], workloads: Workloads
) -> Iterator[tuple[DeviceKey, set[str]]]:
    """Yield the uids of the pods with processes on each device; nothing if all have names."""
    pods = workloads.pods or {}
    if all(place.pod_uid is None or place.pod_uid in pods for place in workloads.places.values()):
        return
    for key, device in (pair for gpu in gpus for pair in _devices(gpu)):
        places = [workloads.places.get(process.pid) for process in device.processes or ()]
        yield key, {place.pod_uid for place in places if place is not None and place.pod_uid is not None}


def _devices(gpu: GpuReading) -> list[tuple[DeviceKey, GpuReading | MigReading]]:
    """Return the devices of a GPU that have processes: the GPU itself, or its MIG devices."""
    if not gpu.mig_enabled:
        return [(DeviceKey(gpu.identity.uuid), gpu)]
    return [(DeviceKey(gpu.identity.uuid, mig.uuid), mig) for mig in gpu.mig or ()]


def lists_users(processes: Sequence[DeviceProcess] | None, memory: Memory | None) -> bool:
    """Return False if a process list is empty although more memory is used than the driver needs."""
    if processes or memory is None:
        return True
    return memory.used <= OVERHEAD_BYTES + memory.total * OVERHEAD_SHARE


def lists_users_of(gpu: GpuReading, mig: MigReading) -> bool:
    """Return False if the process list of a MIG device must be incomplete.

    Compute instances that share the memory of their GPU instance are checked together; if one of them has no
    process list, the memory in use may be that of its processes.
    """
    if not mig.memory_shared:
        return lists_users(mig.processes, mig.memory)
    lists = [sibling.processes for sibling in gpu.mig or () if sibling.gi == mig.gi]
    known = [process for processes in lists for process in processes or ()]
    return not gpu.mig_complete or None in lists or lists_users(known, mig.memory)
