"""The tables of series: one row for each exported family.

HELP texts, the renderer, JSON fields, CSV columns, the reference page and the tests are made from the tables;
a new series is a new row. A family's name is the prefix of its ``Rows`` and the name in its row: search for
``memory_used_bytes``, not for ``gpuslice_container_memory_used_bytes``.

Here are the levels of the tables: the records of each in a snapshot, with the labels that identify a record.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from exporter.metrics.family import AnyFamily, Family, Labelled, LabelledFamily, Level, field_name, scaled
from exporter.metrics.gpu import GPU
from exporter.metrics.gpu_parts import MIG, VGPU
from exporter.metrics.holders import CONTAINER, POD, POD_LABELS, label_names
from exporter.metrics.node import COLLECTOR, NODE
from exporter.model import Number, Snapshot

__all__ = [
    "COLLECTOR",
    "CONTAINER",
    "GPU",
    "MIG",
    "NODE",
    "POD",
    "VGPU",
    "AnyFamily",
    "Family",
    "Labelled",
    "LabelledFamily",
    "Level",
    "Number",
    "field_name",
    "scaled",
]

# All native families, in the order of the page.
FAMILIES: tuple[AnyFamily, ...] = (*NODE, *COLLECTOR, *GPU, *MIG, *VGPU, *CONTAINER, *POD)


class Entity(NamedTuple):
    """A record of the model with its labels; a label with an empty value is not printed."""

    names: tuple[str, ...]
    values: tuple[str, ...]
    row: Any


Enumerate: TypeAlias = Callable[[Snapshot], Iterable[Entity]]

# Labels that identify a record of a level within its node. ``mig_uuid`` of a container is empty on a GPU.
IDENTITY_LABELS: Mapping[Level, tuple[str, ...]] = {
    "node": (),
    "collector": ("collector",),
    "gpu": ("uuid",),
    "mig": ("uuid", "mig_uuid"),
    "vgpu": ("uuid", "vgpu_uuid"),
    "container": ("namespace", "pod", "container", "uuid", "mig_uuid"),
    "pod": POD_LABELS,
}

# All labels of a level. ``gpu`` is the NVML index, as in dcgm-exporter; a pod also has its own labels.
LEVEL_LABELS: Mapping[Level, tuple[str, ...]] = {
    "node": ("node",),
    "collector": ("node", "collector"),
    "gpu": ("node", "gpu", "uuid"),
    "mig": ("node", "gpu", "uuid", "mig_uuid", "profile"),
    "vgpu": ("node", "gpu", "uuid", "vgpu_uuid"),
    "container": ("node", "gpu", "uuid", "mig_uuid", "namespace", "pod", "container"),
    "pod": ("node", *POD_LABELS),
}


def _indexes(snapshot: Snapshot) -> dict[str, str]:
    """Return the NVML index of each GPU by uuid; without those whose index is unknown."""
    gpus = (row.identity for row in snapshot.gpus)
    return {gpu.uuid: str(gpu.index) for gpu in gpus if gpu.index >= 0}


def _node(snapshot: Snapshot) -> Iterator[Entity]:
    yield Entity(LEVEL_LABELS["node"], (snapshot.node.name,), snapshot)


def _collectors(snapshot: Snapshot) -> Iterator[Entity]:
    for row in snapshot.collectors:
        yield Entity(LEVEL_LABELS["collector"], (snapshot.node.name, row.name), row)


def _gpus(snapshot: Snapshot) -> Iterator[Entity]:
    node, indexes = snapshot.node.name, _indexes(snapshot)
    for row in snapshot.gpus:
        uuid = row.identity.uuid
        yield Entity(LEVEL_LABELS["gpu"], (node, indexes.get(uuid, ""), uuid), row)


def _migs(snapshot: Snapshot) -> Iterator[Entity]:
    node, indexes = snapshot.node.name, _indexes(snapshot)
    for row in snapshot.migs:
        uuid, mig_uuid = row.device
        values = (node, indexes.get(uuid, ""), uuid, mig_uuid, row.reading.profile or "")
        yield Entity(LEVEL_LABELS["mig"], values, row)


def _vgpus(snapshot: Snapshot) -> Iterator[Entity]:
    node, indexes = snapshot.node.name, _indexes(snapshot)
    for row in snapshot.vgpus:
        yield Entity(LEVEL_LABELS["vgpu"], (node, indexes.get(row.uuid, ""), row.uuid, row.reading.uuid), row)


def _containers(snapshot: Snapshot) -> Iterator[Entity]:
    node, indexes = snapshot.node.name, _indexes(snapshot)
    for row in snapshot.containers:
        device = (node, indexes.get(row.device.uuid, ""), *row.device)
        yield Entity(LEVEL_LABELS["container"], (*device, *row.holder), row)


def _pods(snapshot: Snapshot) -> Iterator[Entity]:
    for row in snapshot.pods:
        names = label_names(tuple(name for name, _ in row.labels))
        values = (snapshot.node.name, row.namespace, row.name, row.uid, *(value for _, value in row.labels))
        yield Entity((*LEVEL_LABELS["pod"], *names), values, row)


# Functions that list the entities of a level. The record of the node level is the Snapshot itself.
ENTITIES: Mapping[Level, Enumerate] = {
    "node": _node,
    "collector": _collectors,
    "gpu": _gpus,
    "mig": _migs,
    "vgpu": _vgpus,
    "container": _containers,
    "pod": _pods,
}


class Group(NamedTuple):
    """A group of readings: its title, and the GPUs and modes that have it, as one phrase each."""

    title: str
    where: str


# By the name in the group field of families and NVML calls.
GROUPS: Mapping[str, Group] = {
    "core": Group("identity", "all GPUs"),
    "memory": Group("memory", "all GPUs; MIG-enabled GPUs only with permission to monitor MIG"),
    "bar1": Group("BAR1", "all GPUs and MIG devices; MIG-enabled GPUs only with permission to monitor MIG"),
    "utilization": Group("utilization", "GPUs not in MIG mode; AMD GPUs"),
    "engines": Group(
        "video engines", "GPUs not in MIG mode that have the engine; JPEG and OFA from Turing on"
    ),
    "accounting": Group(
        "accounting",
        "GPUs with accounting mode on (nvidia-smi -am 1), without MIG and MPS; driver 610 or newer",
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
        "PCIe throughput", "NVIDIA GPUs with --pcie-throughput on, which takes 20 ms per direction and GPU"
    ),
    "nvlink": Group("NVLink", "GPUs with NVLink"),
    "c2c": Group("C2C", "GPUs on a module with a processor, such as Grace"),
    "confidential": Group("protected memory", "GPUs from Hopper on, with confidential computing"),
    "ecc": Group("ECC errors", "data-center GPUs with ECC; not MIG devices"),
    "repairs": Group(
        "memory repair",
        "rows from Ampere on, not in MIG mode; pages on older GPUs; recovery action and pending repairs of "
        "channels and TPCs depending on the driver",
    ),
    "modes": Group("modes", "all NVIDIA GPUs"),
    "events": Group("XID and other events", "NVIDIA GPUs with support for event subscriptions"),
    "vgpu": Group("vGPU", "hosts with the vGPU manager, and their guests"),
    "topology": Group("topology", "all GPUs"),
    "sharing": Group("holders and slices", "all GPUs, with the kubelet's pod-resources socket"),
}
