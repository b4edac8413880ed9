"""Pods that cannot be named by elimination, because the devices of a node contradict each other."""

from collections import defaultdict
from collections.abc import Iterable

from exporter.attribution.held import Held
from exporter.attribution.owners import named_by_elimination
from exporter.model import DeviceKey, GpuReading, MigReading, Workloads


def ambiguous(gpus: Iterable[GpuReading], held: Held, workloads: Workloads) -> frozenset[str]:
    """Return the uids of pods of which different devices would tell different ones.

    Rule 4: a pod has one uid. One that would have two names, or that would share its name with another, uses
    a device that it does not hold.
    """
    pods = workloads.pods or {}
    if all(place.pod_uid is None or place.pod_uid in pods for place in workloads.places.values()):
        return frozenset()
    names: dict[str, set[tuple[str, str]]] = defaultdict(set)
    uids: dict[tuple[str, str], set[str]] = defaultdict(set)
    for key, device in (each for gpu in gpus for each in _devices(gpu)):
        places = [workloads.places.get(process.pid) for process in device.processes or ()]
        in_pods = {place.pod_uid for place in places if place is not None and place.pod_uid is not None}
        for uid, pod in named_by_elimination(in_pods, tuple(held.on(key)), pods).items():
            names[uid].add((pod.namespace, pod.name))
            uids[pod.namespace, pod.name].add(uid)
    return frozenset(
        uid for uid, told in names.items() if len(told) > 1 or any(len(uids[name]) > 1 for name in told)
    )


def _devices(gpu: GpuReading) -> list[tuple[DeviceKey, GpuReading | MigReading]]:
    """List what of a GPU has processes: itself, or its parts."""
    if not gpu.mig_enabled:
        return [(DeviceKey(gpu.identity.uuid), gpu)]
    return [(DeviceKey(gpu.identity.uuid, mig.uuid), mig) for mig in gpu.mig or ()]
