"""Answers that contradict each other: of a driver about processes, and of a node about its devices."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from exporter.attribution.holdings_index import HoldingsIndex
from exporter.attribution.owners import named_by_elimination
from exporter.model import DeviceKey, DeviceProcess, GpuReading, Memory, MigReading, Workloads

# What a driver needs for itself: a fixed part and, for its tables, one that goes with the memory.
OVERHEAD_BYTES, OVERHEAD_SHARE = 1 << 30, 1 / 32
# A device is averaged over another stretch of time than its processes.
BUSY = 0.1


def lists_users(processes: Sequence[DeviceProcess] | None, memory: Memory | None) -> bool:
    """Whether a list can have all users of a device: it is not empty where more is used than by a driver."""
    if processes or memory is None:
        return True
    return memory.used <= OVERHEAD_BYTES + memory.total * OVERHEAD_SHARE


def lists_users_of(gpu: GpuReading, mig: MigReading) -> bool:
    """Whether the list of a MIG device can have all its users, who may share the memory of their instance.

    What is used there may be theirs whose devices do not tell their processes.
    """
    if not mig.memory_shared:
        return lists_users(mig.processes, mig.memory)
    lists = [sibling.processes for sibling in gpu.mig or () if sibling.gi == mig.gi]
    known = [process for processes in lists for process in processes or ()]
    return not gpu.mig_complete or None in lists or lists_users(known, mig.memory)


def believed(
    utilization: Mapping[int, float | None] | None, compute: float | None
) -> Mapping[int, float | None] | None:
    """Return who computed, or None where nobody is said to have on a device that was busy."""
    silent = utilization is not None and not any(utilization.values())
    return None if silent and compute is not None and compute >= BUSY else utilization


def ambiguous(gpus: Iterable[GpuReading], held: HoldingsIndex, workloads: Workloads) -> frozenset[str]:
    """Return the uids of pods of which different devices would tell different ones.

    Rule 4: a pod has one uid. One that would have two names, or that would share its name with another, uses
    a device that it does not hold.
    """
    pods = workloads.pods or {}
    if all(place.pod_uid is None or place.pod_uid in pods for place in workloads.places.values()):
        return frozenset()
    names: dict[str, set[tuple[str, str]]] = defaultdict(set)
    uids: dict[tuple[str, str], set[str]] = defaultdict(set)
    for key, device in (device for gpu in gpus for device in _devices(gpu)):
        places = [workloads.places.get(process.pid) for process in device.processes or ()]
        in_pods = {place.pod_uid for place in places if place is not None and place.pod_uid is not None}
        for uid, pod in named_by_elimination(in_pods, tuple(held.on(key)), pods).items():
            names[uid].add((pod.namespace, pod.name))
            uids[pod.namespace, pod.name].add(uid)
    return frozenset(
        uid
        for uid, candidates in names.items()
        if len(candidates) > 1 or any(len(uids[name]) > 1 for name in candidates)
    )


def _devices(gpu: GpuReading) -> list[tuple[DeviceKey, GpuReading | MigReading]]:
    """List what of a GPU has processes: itself, or its parts."""
    if not gpu.mig_enabled:
        return [(DeviceKey(gpu.identity.uuid), gpu)]
    return [(DeviceKey(gpu.identity.uuid, mig.uuid), mig) for mig in gpu.mig or ()]
