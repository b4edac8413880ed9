"""The levels of the table: which records a snapshot has on each, and the labels that identify one."""

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
    """A record of the model under its identifying labels; ``names`` and ``values`` have equal length."""

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
"""How to list the entities of a level. The record of the node level is the Snapshot itself."""

LEVEL_LABELS: Mapping[Level, tuple[str, ...]] = {
    "node": (),
    "collector": COLLECTOR_LABELS,
    "gpu": GPU_LABELS,
    "mig": MIG_LABELS,
    "vgpu": VGPU_LABELS,
    "container": MIG_CONTAINER_LABELS,
    "pod": POD_LABELS,
}
"""Every label that a level may carry. A container's ``mig_uuid`` is there on MIG devices only.

A pod carries its own labels besides.
"""


class Group(NamedTuple):
    """What a group is called, and where it is to be had, as one phrase each."""

    title: str
    where: str


GROUPS: Mapping[str, Group] = {
    "core": Group("presence and identity", "every GPU"),
    "memory": Group("frame buffer", "every GPU; a MIG-enabled GPU only with the right to monitor MIG"),
    "bar1": Group("BAR1", "every GPU, MIG devices too; a MIG-enabled GPU only with the right to monitor MIG"),
    "utilization": Group("utilization", "every GPU without MIG; AMD"),
    "engines": Group("video engines", "GPUs without MIG that have the engine; JPEG and OFA from Turing on"),
    "processes": Group("processes", "every GPU and MIG device, with the host's pid namespace"),
    "profiling": Group(
        "profiling meters",
        "Hopper and later, MIG devices too (GPM), cycles by driver; others with --dcgm-exporter-url",
    ),
    "power": Group(
        "power and energy", "every GPU; energy from Volta on; averages from Ampere on, but for A100 and A30"
    ),
    "thermal": Group("temperatures", "every GPU; memory on boards with HBM; margins from Ada on"),
    "clocks": Group("clocks", "every GPU"),
    "throttling": Group("clock events and violations", "every NVIDIA GPU; times by driver"),
    "pcie": Group("PCIe", "every GPU outside a vGPU guest; bytes where the driver's counter does not wrap"),
    "pcie_throughput": Group("PCIe throughput", "on request: --pcie-throughput on (20 ms per direction)"),
    "nvlink": Group("NVLink", "GPUs with NVLink"),
    "ecc": Group("ECC errors", "data-center GPUs with ECC; not on MIG devices"),
    "repairs": Group(
        "repairs of memory", "rows from Ampere on, not while cut; pages before; action by driver"
    ),
    "modes": Group("modes", "every NVIDIA GPU"),
    "events": Group("XID and other events", "every NVIDIA GPU whose events can be waited for"),
    "vgpu": Group("vGPU", "hosts with the vGPU manager, and their guests"),
    "topology": Group("topology", "every GPU"),
    "sharing": Group("holders and slices", "every GPU, with the kubelet's pod-resources socket"),
}
"""By the name that families and calls carry."""
