"""Rows of holders: containers with what they hold and use of a device, and the labels of their pods.

Of a GPU: its slices and holders, unattributed usage, and batch jobs.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

from exporter.metrics.family import GPU_ROWS, AnyFamily, Rows, answering, keyed, whole, word
from exporter.model import ContainerRow, PodRow
from exporter.model.balances import NANOSECONDS

_ROWS: Rows[ContainerRow, ContainerRow] = Rows("gpuslice_container_", "container", whole)
_TOTALS = _ROWS.of(lambda row: row.totals)
_POD: Rows[PodRow, PodRow] = Rows("gpuslice_pod_", "pod", whole)
_INFO = "resource, sharing, pod_uid, isolation, memory_source, compute_source, model"


def limits_of(row: ContainerRow) -> ContainerRow | None:
    """Return the row of a container with a limit of device memory in force."""
    return None if row.memory_guaranteed is None else row


# Families of a container on a device (ContainerRow).
CONTAINER: tuple[AnyFamily, ...] = (
    _ROWS.info(
        f"info{{{_INFO}}}",
        "Use of a device by a container: resource, sharing mode, isolation (hard, soft or none), and the "
        "sources of its memory and compute usage (none: not measurable).",
        attrgetter(*_INFO.split(", ")),
    ),
    _ROWS.info(
        "device_health_info{health}",
        "Health of the container's slices of the device, the worst of them, as the kubelet reports it in the "
        "pod's status: Healthy, Unhealthy or Unknown.",
        lambda row: word(row.health),
    ),
    _ROWS.standard.infos(
        "claim_info{claim_namespace, claim, request, driver, pool, device}",
        "Resource claim (DRA) by which the container holds the device: namespace and name of the claim, name "
        "of the request in it, and the device by driver, pool and name.",
        lambda row: row.claims,
    ),
    _ROWS.gauge(
        "slices",
        "Slices of the device allocated to the container, of the first resource in gpuslice_container_info; "
        "0 means use without an allocation.",
    ),
    _ROWS.gauge(
        "memory_entitled_bytes",
        "Device memory that the container may use: a limit or, with time-slicing, a notional share. An MPS "
        "limit applies to each client process, not to the container.",
        lambda row: row.memory_entitled,
    ),
    _ROWS.gauge("memory_used_bytes", "Device memory used by the container.", lambda row: row.memory_used),
    _TOTALS.gauge(
        "memory_peak_bytes",
        "Maximum of the device memory used by the container over all polls since this exporter first saw it "
        "on the device. It starts again with the exporter.",
        lambda totals: totals.memory_peak,
    ),
    _ROWS.of(limits_of).gauge(
        "memory_guaranteed_bytes",
        "Soft limit of the container's device memory, by its cgroup: above it, the container borrows and may "
        "be evicted; absent unless the kernel or the driver limits it.",
        lambda row: row.memory_guaranteed,
    ),
    _ROWS.of(limits_of).gauge(
        "memory_limit_bytes",
        "Hard limit of the container's device memory, by its cgroup or one above: at it, allocations fail; "
        "absent unless one is in force.",
        lambda row: row.memory_limit,
    ),
    _ROWS.of(limits_of).gauge(
        "memory_charged_bytes",
        "Device memory charged to the container's cgroup, which the limits apply to; absent without limits. "
        "Managed memory (UVM) is not charged.",
        lambda row: row.memory_charged,
    ),
    _ROWS.gauge(
        "compute_entitled_ratio",
        "Compute entitlement of the container, as a share of the physical GPU.",
        lambda row: row.compute_entitled,
    ),
    _ROWS.gauge(
        "compute_used_ratio",
        "Compute usage of the container, as a share of the physical GPU.",
        lambda row: row.compute_used,
    ),
    _ROWS.standard.gauge("processes", "Processes of the container with a context on the device."),
    _TOTALS.gauge(
        "last_active_timestamp_seconds",
        "Unix time of the container's last compute use; until the first, when monitoring began.",
        lambda totals: totals.last_active,
    ),
    _TOTALS.counter(
        "entitled_gpu_seconds_total",
        "GPU-seconds held by the container: time integral of its compute entitlement.",
    ),
    _TOTALS.counter(
        "compute_measured_gpu_seconds_total",
        "GPU-seconds held by the container while its compute usage was known; at most those held.",
        lambda totals: totals.measured_gpu_seconds,
    ),
    _TOTALS.counter(
        "used_gpu_seconds_total",
        "GPU-seconds used by the container: time integral of its compute usage.",
    ),
    _TOTALS.counter(
        "held_seconds_total",
        "Time for which the container has had an allocation on the device.",
    ),
    _TOTALS.counter(
        "memory_measured_seconds_total",
        "Time for which the container has had an allocation while its memory usage was known.",
    ),
    _TOTALS.counter(
        "energy_joules_total",
        "GPU energy attributed to the container: by usage while the GPU is active, else by entitlement; "
        "added when the energy of the GPU is read.",
    ),
)

# Families of a pod (PodRow), which also have the pod's own labels.
POD: tuple[AnyFamily, ...] = (
    _POD.gauge(
        "labels",
        "Labels of a pod that holds or uses a device on this node, as selected by --pod-labels, and the "
        "label gpuslice-exporter/advice, named as in kube_pod_labels of kube-state-metrics.",
        lambda _: 1,
    ),
)

POD_LABELS = ("namespace", "pod", "pod_uid")

_INVALID = re.compile(r"[^a-zA-Z0-9_]")
_CAMEL = re.compile(r"([a-z0-9])([A-Z])")


@lru_cache(maxsize=1024)
def label_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of a pod's labels as kube-state-metrics has them in ``kube_pod_labels``.

    ``app.kubernetes.io/name`` is ``label_app_kubernetes_io_name``. Names that become equal are
    numbered in the order of ``names``, from ``label_a_b_conflict1``; a number already in use is skipped.
    """
    wanted = ["label_" + _CAMEL.sub(r"\1_\2", _INVALID.sub("_", name)).lower() for name in names]
    shared = {name for name in wanted if wanted.count(name) > 1}
    taken = {name for name in wanted if name not in shared}
    unique = []
    for name in wanted:
        free = _free(name, taken) if name in shared else name
        taken.add(free)
        unique.append(free)
    return tuple(unique)


def _free(name: str, taken: set[str]) -> str:
    numbered = (f"{name}_conflict{number}" for number in range(1, len(taken) + 2))
    return next(candidate for candidate in numbered if candidate not in taken)


_SHARING = GPU_ROWS.grouped("sharing")
_BALANCES = _SHARING.of(lambda row: row.balances)
_DISAGREEMENT = GPU_ROWS.of(lambda row: row.disagreement if answering(row) else None, "accounting")


def slices(rows: Rows[Any, Any], device: str) -> tuple[AnyFamily, ...]:
    """Return the families of the slices of a device; ``device`` is its name in the help."""
    return (
        rows.gauge_by(
            "slices{resource}",
            f"Slices of this {device} offered by the device plugin, healthy or not, by resource.",
            lambda row: (((count.resource,), count.offered) for count in row.slices),
        ),
        (rows if rows.level == "gpu" else rows.standard).gauge_by(
            "slices_unhealthy{resource}",
            f"Slices of this {device} reported unhealthy by the device plugin, by resource; they are not "
            "allocated to pods.",
            lambda row: (((count.resource,), count.unhealthy) for count in row.slices),
        ),
        rows.gauge_by(
            "slices_allocated{resource}",
            f"Slices of this {device} allocated to containers, by resource.",
            lambda row: (((count.resource,), count.allocated) for count in row.slices),
        ),
    )


_CORDONED = _SHARING.standard.gauge_by(
    "slices_cordoned{resource}",
    "Slices of this GPU that the scheduler does not allocate to new pods because the GPU is cordoned, held "
    "or not, by resource; absent if the node's annotations are unknown.",
    lambda row: (((count.resource,), count.cordoned) for count in row.slices),
)


def job_info(rows: Rows[Any, Any], device: str) -> AnyFamily:
    """Return the family of the batch jobs on a device; ``device`` is its name in the help."""
    return rows.infos(
        "job_info{hpc_job}",
        f"Batch job on the {device}, from the files in --job-mapping-dir.",
        lambda row: ((job,) for job in row.jobs),
    )


# Slices, holders, entitlements, unattributed usage, balances and jobs of a GPU.
GPU_SHARING: tuple[AnyFamily, ...] = (
    *slices(_SHARING, "GPU"),
    _CORDONED,
    _SHARING.gauge(
        "holders", "Distinct containers that hold a slice of this GPU or of one of its MIG devices."
    ),
    _SHARING.gauge_by(
        "mig_compute_slices{state}",
        "Compute slices of a GPU in MIG mode, by state: used by MIG devices, or free and with memory slices "
        "for new ones.",
        lambda row: ((("used",), row.mig_slices_used), (("free",), row.mig_slices_free)),
    ),
    _SHARING.gauge_by(
        "mig_memory_slices{state}",
        "Memory slices of a GPU in MIG mode, by state: used by MIG devices or free; absent if the driver "
        "does not report the placement of the GPU instances.",
        lambda row: ((("used",), row.mig_memory_used), (("free",), row.mig_memory_free)),
    ),
    _SHARING.gauge(
        "mig_adjacent_free_memory_slices",
        "Longest run of adjacent free memory slices of a GPU in MIG mode; a new GPU instance needs adjacent "
        "slices.",
        lambda row: row.mig_memory_adjacent,
    ),
    _SHARING.gauge(
        "memory_entitled_bytes",
        "Sum of the memory entitlements of all holders of the GPU; above the total memory, the GPU is "
        "overcommitted.",
        lambda row: row.memory_entitled,
    ),
    _SHARING.gauge(
        "unattributed_memory_bytes",
        "GPU memory in use not attributed to any container.",
        lambda row: row.unattributed_memory,
    ),
    _SHARING.gauge(
        "unattributed_utilization_ratio",
        "GPU utilization not attributed to any container.",
        lambda row: row.unattributed_utilization,
    ),
    _SHARING.counter(
        "unattributed_energy_joules_total",
        "GPU energy not attributed to any container.",
    ),
    _DISAGREEMENT.gauge(
        "attribution_disagreement_ratio",
        "Share of the GPU-seconds of about the last hour on which the driver's samples (the compute of "
        "containers) and its accounting disagree, by container; absent unless accounting mode is on.",
        lambda disagreement: disagreement.share,
    ),
    _DISAGREEMENT.gauge(
        "attribution_disagreement_explained_ratio",
        "Disagreement of samples and accounting up to which neither is wrong: rounding, the length of a "
        "sample, and processes that ended explain it.",
        lambda disagreement: disagreement.explained,
    ),
    _BALANCES.counter_by(
        "allocation_seconds_total{class}",
        "Time of the GPU by what it was allocated to, in parts of the whole GPU: held, unknown, down, "
        "withdrawn, not_offered, free or unpartitioned. The classes add up to the time that the exporter "
        "observed, as do those of gpuslice_gpu_use_seconds_total.",
        lambda balances: keyed(balances.allocation, NANOSECONDS),
    ),
    _BALANCES.counter_by(
        "use_seconds_total{class}",
        "Compute time of the GPU by what it was used for: holders (containers on devices that they hold), "
        "others, unmeasured, idle_held (held by containers that left it idle) or idle_free.",
        lambda balances: keyed(balances.use, NANOSECONDS),
    ),
    job_info(GPU_ROWS, "GPU as a whole"),
)
