"""Checks for answers that are incomplete or contradict each other: processes, utilization, devices, names."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from exporter.attribution.holdings_index import HoldingsIndex
from exporter.attribution.owners import named_by_elimination
from exporter.model import (
    ContainerRef,
    DeviceKey,
    DeviceProcess,
    GpuReading,
    Memory,
    MigReading,
    Workloads,
)

NVIDIA, AMD = "nvidia", "amd"
# The driver's own memory: a fixed part, and tables that grow with the memory of the device.
OVERHEAD_BYTES, OVERHEAD_SHARE = 1 << 30, 1 / 32
# Below this share, utilization of a device does not contradict idle processes: the periods differ.
BUSY = 0.1


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


def plausible_utilization(
    utilization: Mapping[int, float | None] | None, compute: float | None
) -> Mapping[int, float | None] | None:
    """Return ``utilization`` (pid → percent), or None if it is all zero on a device that was busy."""
    all_idle = utilization is not None and not any(utilization.values())
    return None if all_idle and compute is not None and compute >= BUSY else utilization


def lists_held_devices(gpu: GpuReading, unresolved: Collection[ContainerRef]) -> bool:
    """Return True if the reading lists every device of a GPU that a container may hold.

    KFD permanently hides partitions from readers without access. MIG devices are known from earlier readings,
    except one made while the driver did not list them: its holder is in ``unresolved``, the containers with
    ids of no known device.
    """
    if gpu.identity.vendor == AMD:
        return gpu.mig_complete
    complete = gpu.mig_complete and (gpu.mig_enabled is not None or gpu.identity.vendor != NVIDIA)
    return complete or not unresolved


def ambiguous(gpus: Iterable[GpuReading], held: HoldingsIndex, workloads: Workloads) -> frozenset[str]:
    """Return the uids of pods that must not be named by elimination (rule 4).

    A pod has one uid and one name. If elimination on different devices gives a uid two names, or two uids the
    same name, one of the pods uses a device that it does not hold.
    """
    pods = workloads.pods or {}
    if all(place.pod_uid is None or place.pod_uid in pods for place in workloads.places.values()):
        return frozenset()
    names: dict[str, set[tuple[str, str]]] = defaultdict(set)
    uids: dict[tuple[str, str], set[str]] = defaultdict(set)
    for key, device in (pair for gpu in gpus for pair in _devices(gpu)):
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
    """Return the devices of a GPU that have processes: the GPU itself, or its MIG devices."""
    if not gpu.mig_enabled:
        return [(DeviceKey(gpu.identity.uuid), gpu)]
    return [(DeviceKey(gpu.identity.uuid, mig.uuid), mig) for mig in gpu.mig or ()]
