"""The levels of the tables: the records of each in a snapshot, with the labels that identify a record."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from exporter.metrics.container_rows import POD_LABELS, label_names
from exporter.metrics.family import Level
from exporter.model import Snapshot

COLLECTOR_LABELS = ("collector",)
GPU_LABELS = ("uuid",)
MIG_LABELS = ("uuid", "mig_uuid")
VGPU_LABELS = ("uuid", "vgpu_uuid")
CONTAINER_LABELS = ("namespace", "pod", "container", "uuid")
MIG_CONTAINER_LABELS = (*CONTAINER_LABELS, "mig_uuid")


class Entity(NamedTuple):
    """A record of the model with the names and values of its identifying labels."""

    names: tuple[str, ...]
    values: tuple[str, ...]
    row: Any


Enumerate: TypeAlias = Callable[[Snapshot], Iterable[Entity]]


def _node(snapshot: Snapshot) -> Iterator[Entity]:
    yield Entity((), (), snapshot)


def _collectors(snapshot: Snapshot) -> Iterator[Entity]:
    for row in snapshot.collectors:
        yield Entity(COLLECTOR_LABELS, (row.name,), row)


def _gpus(snapshot: Snapshot) -> Iterator[Entity]:
    for row in snapshot.gpus:
        yield Entity(GPU_LABELS, (row.identity.uuid,), row)


def _migs(snapshot: Snapshot) -> Iterator[Entity]:
    for row in snapshot.migs:
        yield Entity(MIG_LABELS, (row.device.uuid, row.device.mig_uuid), row)


def _vgpus(snapshot: Snapshot) -> Iterator[Entity]:
    for row in snapshot.vgpus:
        yield Entity(VGPU_LABELS, (row.uuid, row.reading.uuid), row)


def _containers(snapshot: Snapshot) -> Iterator[Entity]:
    for row in snapshot.containers:
        holder, (uuid, mig_uuid) = row.holder, row.device
        values = (holder.namespace, holder.pod, holder.container, uuid)
        if mig_uuid:
            yield Entity(MIG_CONTAINER_LABELS, (*values, mig_uuid), row)
        else:
            yield Entity(CONTAINER_LABELS, values, row)


def _pods(snapshot: Snapshot) -> Iterator[Entity]:
    for row in snapshot.pods:
        names = label_names(tuple(name for name, _ in row.labels))
        values = (row.namespace, row.name, row.uid, *(value for _, value in row.labels))
        yield Entity((*POD_LABELS, *names), values, row)


ENTITIES: Mapping[Level, Enumerate] = {
    "node": _node,
    "collector": _collectors,
    "gpu": _gpus,
    "mig": _migs,
    "vgpu": _vgpus,
    "container": _containers,
    "pod": _pods,
}
"""Functions that list the entities of a level. The record of the node level is the Snapshot itself."""

LEVEL_LABELS: Mapping[Level, tuple[str, ...]] = {
    "node": (),
    "collector": COLLECTOR_LABELS,
    "gpu": GPU_LABELS,
    "mig": MIG_LABELS,
    "vgpu": VGPU_LABELS,
    "container": MIG_CONTAINER_LABELS,
    "pod": POD_LABELS,
}
"""Labels of a level. A container has ``mig_uuid`` on MIG devices only; a pod also has its own labels."""


class Group(NamedTuple):
    """A group of readings: its title, and the GPUs and modes that have it, as one phrase each."""

    title: str
    where: str


GROUPS: Mapping[str, Group] = {
    "core": Group("identity", "all GPUs"),
    "memory": Group("memory", "all GPUs; MIG-enabled GPUs only with permission to monitor MIG"),
    "bar1": Group("BAR1", "all GPUs and MIG devices; MIG-enabled GPUs only with permission to monitor MIG"),
    "utilization": Group("utilization", "GPUs not in MIG mode; AMD GPUs"),
    "engines": Group(
        "video engines", "GPUs not in MIG mode that have the engine; JPEG and OFA from Turing on"
    ),
    "processes": Group("processes", "all GPUs and MIG devices, with the host's PID namespace"),
    "profiling": Group(
        "profiling metrics",
        "GPUs and MIG devices from Hopper on (GPM), cycles depending on the driver; older GPUs with "
        "--dcgm-exporter-url",
    ),
    "power": Group(
        "power and energy",
        "all GPUs; energy from Volta on; average power from Ampere on, except A100 and A30",
    ),
    "thermal": Group("temperatures", "all GPUs; memory temperature on boards with HBM; margins from Ada on"),
    "clocks": Group("clocks", "all GPUs"),
    "throttling": Group("clock events and violations", "all NVIDIA GPUs; times depending on the driver"),
    "pcie": Group("PCIe", "all GPUs except in a vGPU guest; byte counters only if the driver's do not wrap"),
    "pcie_throughput": Group(
        "PCIe throughput", "with --pcie-throughput on, which takes 20 ms per direction and GPU"
    ),
    "nvlink": Group("NVLink", "GPUs with NVLink"),
    "ecc": Group("ECC errors", "data-center GPUs with ECC; not MIG devices"),
    "repairs": Group(
        "memory repair",
        "rows from Ampere on, not in MIG mode; pages on older GPUs; recovery action depending on the driver",
    ),
    "modes": Group("modes", "all NVIDIA GPUs"),
    "events": Group("XID and other events", "NVIDIA GPUs with support for event subscriptions"),
    "vgpu": Group("vGPU", "hosts with the vGPU manager, and their guests"),
    "topology": Group("topology", "all GPUs"),
    "sharing": Group("holders and slices", "all GPUs, with the kubelet's pod-resources socket"),
}
"""By the name in the group field of families and NVML calls."""
