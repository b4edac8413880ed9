"""The rows of how a GPU is cut up and held, and of what nobody can be charged with."""

from collections.abc import Iterator
from typing import Literal

from exporter.metrics.family import AnyFamily, Family, Labelled, LabelledFamily
from exporter.model import GpuRow, MigRow


def job_info(level: Literal["gpu", "mig"], device: str) -> AnyFamily:
    """Make the row of the jobs that a batch system has on a device; ``device`` names it in the help."""
    return LabelledFamily(
        f"gpuslice_{level}_job_info",
        "info",
        level,
        f"A job that a batch system runs on the {device}, by the files in --job-mapping-dir.",
        ("hpc_job",),
        _jobs,
        several=True,
    )


def slices_unhealthy(level: Literal["gpu", "mig"], device: str) -> AnyFamily:
    """Make the row of the slices that nobody can be given; ``device`` names their device in the help."""
    return LabelledFamily(
        f"gpuslice_{level}_slices_unhealthy",
        "gauge",
        level,
        f"Slices of this {device} that are unhealthy by the device plugin, by resource. No pod gets them.",
        ("resource",),
        lambda row: (((count.resource,), count.unhealthy) for count in row.slices),
        group="sharing",
    )


def _jobs(row: GpuRow | MigRow) -> Iterator[Labelled]:
    return (((job,), 1) for job in row.jobs)


def _mig_slices(row: GpuRow) -> Iterator[Labelled]:
    yield ("used",), row.mig_slices_used
    yield ("free",), row.mig_slices_free


def _mig_memory(row: GpuRow) -> Iterator[Labelled]:
    yield ("used",), row.mig_memory_used
    yield ("free",), row.mig_memory_free


GPU_SHARING: tuple[AnyFamily, ...] = (
    LabelledFamily(
        "gpuslice_gpu_slices",
        "gauge",
        "gpu",
        "Slices that the device plugin has cut this GPU into, healthy or not, by resource.",
        ("resource",),
        lambda row: (((count.resource,), count.offered) for count in row.slices),
        group="sharing",
    ),
    slices_unhealthy("gpu", "GPU"),
    LabelledFamily(
        "gpuslice_gpu_slices_allocated",
        "gauge",
        "gpu",
        "Slices of this GPU that containers hold, by resource.",
        ("resource",),
        lambda row: (((count.resource,), count.allocated) for count in row.slices),
        group="sharing",
    ),
    Family(
        "gpuslice_gpu_holders",
        "gauge",
        "gpu",
        "Distinct containers that hold a slice of this GPU or of one of its MIG devices.",
        lambda row: row.holders,
        group="sharing",
    ),
    LabelledFamily(
        "gpuslice_gpu_mig_compute_slices",
        "gauge",
        "gpu",
        "Compute slices of a GPU in MIG mode: used by MIG devices, or free of them.",
        ("state",),
        _mig_slices,
        group="sharing",
    ),
    LabelledFamily(
        "gpuslice_gpu_mig_memory_slices",
        "gauge",
        "gpu",
        "Memory slices of a GPU in MIG mode: used by MIG devices, or free of them; absent where the "
        "driver does not tell the place of each.",
        ("state",),
        _mig_memory,
        group="sharing",
    ),
    Family(
        "gpuslice_gpu_mig_adjacent_free_memory_slices",
        "gauge",
        "gpu",
        "Longest run of free memory slices of a GPU in MIG mode: a new GPU instance needs adjacent ones.",
        lambda row: row.mig_memory_adjacent,
        group="sharing",
    ),
    Family(
        "gpuslice_gpu_memory_entitled_bytes",
        "gauge",
        "gpu",
        "Sum of what the holders are entitled to; more than the total means over-commitment.",
        lambda row: row.memory_entitled,
        group="sharing",
    ),
    Family(
        "gpuslice_gpu_unattributed_memory_bytes",
        "gauge",
        "gpu",
        "Frame buffer in use that belongs to no known container.",
        lambda row: row.unattributed_memory,
        group="sharing",
    ),
    Family(
        "gpuslice_gpu_unattributed_utilization_ratio",
        "gauge",
        "gpu",
        "Utilization of the GPU that belongs to no known container.",
        lambda row: row.unattributed_utilization,
        group="sharing",
    ),
    Family(
        "gpuslice_gpu_unattributed_energy_joules_total",
        "counter",
        "gpu",
        "Energy that was given to no container.",
        lambda row: row.unattributed_energy_joules,
        group="sharing",
    ),
    job_info("gpu", "GPU as a whole"),
)
"""Slices, holders, entitlements, what is unattributed, and jobs."""
