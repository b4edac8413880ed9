"""Rows of a snapshot that need no join: events, jobs and pods."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from exporter.model import (
    ADVICE_LABEL,
    ContainerRef,
    ContainerRow,
    DeviceEvent,
    EventRow,
    GpuRow,
    MigRow,
    PodIdentity,
    PodRow,
    Workloads,
)


def event_rows(
    recent: Iterable[DeviceEvent], earlier: Iterable[EventRow], containers: Sequence[ContainerRow]
) -> tuple[EventRow, ...]:
    """Return a row for each recent event, in their order.

    An event among the ``earlier`` rows keeps its holders; a new one gets those among ``containers``, the rows
    of this poll and of the previous one: a container that the event ended is only in the latter. A container
    is a holder of a device if it has slices or processes on it; an event of a whole GPU also concerns the
    holders of its MIG devices.
    """
    known = {row.event: row for row in earlier}
    return tuple(
        known.get(event) or EventRow(event=event, holders=_holders(event, containers)) for event in recent
    )


def _holders(event: DeviceEvent, containers: Iterable[ContainerRow]) -> tuple[ContainerRef, ...]:
    return tuple(sorted({row.holder for row in containers if _concerns(event, row)}))


def _concerns(event: DeviceEvent, row: ContainerRow) -> bool:
    if row.device.uuid != event.uuid or not (row.slices or row.processes):
        return False
    return event.mig_uuid in ("", row.device.mig_uuid)


# A batch system numbers the NVIDIA GPUs only, as dcgm-exporter does.
VENDOR = "nvidia"
Jobs = Mapping[tuple[int, int | None], tuple[str, ...]]


def gpus_with_jobs(gpus: Iterable[GpuRow], jobs: Jobs) -> tuple[GpuRow, ...]:
    """Return the GPUs with the jobs that have each as a whole."""
    rows = tuple(gpus)
    counted = _counted(rows)
    return tuple(
        replace(gpu, jobs=jobs.get((gpu.identity.index, None), ())) if gpu.identity.uuid in counted else gpu
        for gpu in rows
    )


def migs_with_jobs(migs: Iterable[MigRow], gpus: Iterable[GpuRow], jobs: Jobs) -> tuple[MigRow, ...]:
    """Return the MIG devices with the jobs that have the GPU instance of each."""
    indexes = _counted(gpus)
    return tuple(
        replace(mig, jobs=jobs.get((indexes[mig.device.uuid], mig.reading.gi), ()))
        if mig.device.uuid in indexes
        else mig
        for mig in migs
    )


def _counted(gpus: Iterable[GpuRow]) -> dict[str, int]:
    """Return the indexes that identify one GPU, by uuid.

    A GPU that is gone keeps its index, which another GPU may have now: the one that answers counts.
    """
    by_index: dict[int, list[GpuRow]] = defaultdict(list)
    for gpu in gpus:
        if gpu.identity.vendor == VENDOR:
            by_index[gpu.identity.index].append(gpu)
    answering = {
        index: [gpu for gpu in rows if gpu.reading is not None and gpu.reading.up] or rows
        for index, rows in by_index.items()
    }
    return {rows[0].identity.uuid: index for index, rows in answering.items() if len(rows) == 1}


def pod_rows(
    containers: Iterable[ContainerRow], workloads: Workloads, patterns: Sequence[re.Pattern[str]]
) -> tuple[PodRow, ...]:
    """Return a sorted row for each pod of a container row with a label name that fully matches a pattern.

    The label that turns advice off always has a row. A pod with unknown labels has none.
    """
    uids = {row.pod_uid for row in containers}
    pods = (pod for uid, pod in (workloads.pods or {}).items() if uid in uids)
    rows = (_row(pod, patterns) for pod in sorted(pods, key=lambda pod: (pod.namespace, pod.name, pod.uid)))
    return tuple(row for row in rows if row.labels)


def _row(pod: PodIdentity, patterns: Sequence[re.Pattern[str]]) -> PodRow:
    labels = pod.details.labels if pod.details is not None else {}
    matching = (
        (name, value)
        for name, value in sorted(labels.items())
        if name == ADVICE_LABEL or any(pattern.fullmatch(name) for pattern in patterns)
    )
    return PodRow(namespace=pod.namespace, name=pod.name, uid=pod.uid, labels=tuple(matching))
