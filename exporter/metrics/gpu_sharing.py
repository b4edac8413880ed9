"""Rows of a GPU's slices and holders, of unattributed usage, and of batch jobs."""

from typing import Any

from exporter.metrics.family import GPU_ROWS, AnyFamily, Rows

_SHARING = GPU_ROWS.grouped("sharing")


def slices(rows: Rows[Any, Any], device: str) -> tuple[AnyFamily, ...]:
    """Return the families of the slices of a device; ``device`` is its name in the help."""
    return (
        rows.gauge_by(
            "slices",
            ("resource",),
            f"Slices of this {device} offered by the device plugin, healthy or not, by resource.",
            lambda row: (((count.resource,), count.offered) for count in row.slices),
        ),
        (rows if rows.level == "gpu" else rows.standard).gauge_by(
            "slices_unhealthy",
            ("resource",),
            f"Slices of this {device} reported unhealthy by the device plugin, by resource; they are not "
            "allocated to pods.",
            lambda row: (((count.resource,), count.unhealthy) for count in row.slices),
        ),
        rows.gauge_by(
            "slices_allocated",
            ("resource",),
            f"Slices of this {device} allocated to containers, by resource.",
            lambda row: (((count.resource,), count.allocated) for count in row.slices),
        ),
    )


_CORDONED = _SHARING.standard.gauge_by(
    "slices_cordoned",
    ("resource",),
    "Slices of this GPU that the scheduler does not allocate to new pods because the GPU is cordoned, held "
    "or not, by resource; absent if the node's annotations are unknown.",
    lambda row: (((count.resource,), count.cordoned) for count in row.slices),
)


def job_info(rows: Rows[Any, Any], device: str) -> AnyFamily:
    """Return the family of the batch jobs on a device; ``device`` is its name in the help."""
    return rows.infos(
        "job_info",
        ("hpc_job",),
        f"Batch job on the {device}, from the files in --job-mapping-dir.",
        lambda row: ((job,) for job in row.jobs),
    )


GPU_SHARING: tuple[AnyFamily, ...] = (
    *slices(_SHARING, "GPU"),
    _CORDONED,
    _SHARING.gauge(
        "holders",
        "Distinct containers that hold a slice of this GPU or of one of its MIG devices.",
        lambda row: row.holders,
    ),
    _SHARING.gauge_by(
        "mig_compute_slices",
        ("state",),
        "Compute slices of a GPU in MIG mode, by state: used by MIG devices or free.",
        lambda row: ((("used",), row.mig_slices_used), (("free",), row.mig_slices_free)),
    ),
    _SHARING.gauge_by(
        "mig_memory_slices",
        ("state",),
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
        lambda row: row.unattributed_energy_joules,
    ),
    job_info(GPU_ROWS, "GPU as a whole"),
)
"""Slices, holders, entitlements, unattributed usage and jobs of a GPU."""
