"""The rows of containers: which slices each holds, what it is entitled to, and what it uses."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from exporter.metrics.family import AnyFamily, Family, Labelled, LabelledFamily, Number
from exporter.model import ContainerRow, Totals


def _totals(value: Callable[[Totals], float | None]) -> Callable[[ContainerRow], Number | None]:
    return lambda row: None if row.totals is None else value(row.totals)


def _info(row: ContainerRow) -> Iterator[Labelled]:
    yield (
        (
            row.resource,
            row.sharing,
            row.pod_uid,
            row.isolation,
            row.memory_source,
            row.compute_source,
            row.model,
        ),
        1,
    )


CONTAINER: tuple[AnyFamily, ...] = (
    LabelledFamily(
        "gpuslice_container_info",
        "info",
        "container",
        "What a container has of a device. isolation is hard, soft or none; memory_source and "
        "compute_source tell where the numbers of its use come from (none: not measurable).",
        ("resource", "sharing", "pod_uid", "isolation", "memory_source", "compute_source", "model"),
        _info,
    ),
    Family(
        "gpuslice_container_slices",
        "gauge",
        "container",
        "Slices of this device that the container holds, of the resource that its info names first; 0: it "
        "uses the device without holding any of it.",
        lambda row: row.slices,
    ),
    Family(
        "gpuslice_container_memory_entitled_bytes",
        "gauge",
        "container",
        "Memory of the device that the container may use: a limit or, with time-slicing, a notional share. A "
        "limit of MPS binds each client process, not the container.",
        lambda row: row.memory_entitled,
    ),
    Family(
        "gpuslice_container_memory_used_bytes",
        "gauge",
        "container",
        "Memory of the device that the container's processes hold.",
        lambda row: row.memory_used,
    ),
    Family(
        "gpuslice_container_compute_entitled_ratio",
        "gauge",
        "container",
        "Share of the physical GPU's compute that the container is entitled to.",
        lambda row: row.compute_entitled,
    ),
    Family(
        "gpuslice_container_compute_used_ratio",
        "gauge",
        "container",
        "Share of the physical GPU's compute that the container uses.",
        lambda row: row.compute_used,
    ),
    Family(
        "gpuslice_container_processes",
        "gauge",
        "container",
        "Processes of the container with a context on the device.",
        lambda row: row.processes,
    ),
    Family(
        "gpuslice_container_last_active_timestamp_seconds",
        "gauge",
        "container",
        "Unix time at which the container was last seen computing; before that, since when it is watched.",
        _totals(lambda totals: totals.last_active),
    ),
    Family(
        "gpuslice_container_entitled_gpu_seconds_total",
        "counter",
        "container",
        "GPU-seconds held: the integral of the entitled share of compute.",
        _totals(lambda totals: totals.entitled_gpu_seconds),
    ),
    Family(
        "gpuslice_container_used_gpu_seconds_total",
        "counter",
        "container",
        "GPU-seconds computed: the integral of the used share of compute.",
        _totals(lambda totals: totals.used_gpu_seconds),
    ),
    Family(
        "gpuslice_container_energy_joules_total",
        "counter",
        "container",
        "The container's part of the GPU's energy: by use while it computes, by entitlement while it idles.",
        _totals(lambda totals: totals.energy_joules),
    ),
)
"""Families with one entity per container and device (a ContainerRow)."""


POD_LABELS = ("namespace", "pod", "pod_uid")

_INVALID = re.compile(r"[^a-zA-Z0-9_]")
_CAMEL = re.compile(r"([a-z0-9])([A-Z])")


@lru_cache(maxsize=1024)
def label_names(names: Sequence[str]) -> tuple[str, ...]:
    """Spell the names of a pod's labels, given in order, as kube-state-metrics does in ``kube_pod_labels``.

    ``app.kubernetes.io/name`` is ``label_app_kubernetes_io_name``. Names that become the same are numbered in
    their order, ``label_a_b_conflict1`` on, past numbers that another name has by itself.
    """
    wanted = [_name(name) for name in names]
    shared = {name for name in wanted if wanted.count(name) > 1}
    taken = {name for name in wanted if name not in shared}
    spelled = []
    for name in wanted:
        free = _free(name, taken) if name in shared else name
        taken.add(free)
        spelled.append(free)
    return tuple(spelled)


def _name(name: str) -> str:
    return "label_" + _CAMEL.sub(r"\1_\2", _INVALID.sub("_", name)).lower()


def _free(name: str, taken: set[str]) -> str:
    numbers = (f"{name}_conflict{number}" for number in range(1, len(taken) + 2))
    return next(each for each in numbers if each not in taken)


POD: tuple[AnyFamily, ...] = (
    Family(
        "gpuslice_pod_labels",
        "gauge",
        "pod",
        "Labels of a pod that holds or uses a device here, as far as --pod-labels lets them through; each is "
        "a label of the series, named as in kube_pod_labels of kube-state-metrics.",
        lambda _: 1,
    ),
)
"""Families with one entity per pod (a PodRow), labelled ``namespace``, ``pod``, ``pod_uid`` and its own."""
