"""The levels of the table: which records a snapshot has on each, and the labels that identify one."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from exporter.metrics.family import Level
from exporter.metrics.pod import POD_LABELS, label_names
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
