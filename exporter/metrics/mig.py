"""The rows of MIG devices: their size, their memory, and who holds them."""

from collections.abc import Callable, Iterator

from exporter.metrics.family import AnyFamily, Family, Labelled, LabelledFamily, Number, scaled
from exporter.metrics.gpu_sharing import job_info, slices_unhealthy
from exporter.metrics.profiling import MIG_PROFILING
from exporter.model import Bar1, Memory, MigRow


def _memory(value: Callable[[Memory], int | None]) -> Callable[[MigRow], Number | None]:
    """Ask the memory, unless several compute instances share it: printed twice, it would be summed twice."""

    def read(row: MigRow) -> Number | None:
        memory = row.reading.memory
        return None if memory is None or row.reading.memory_shared else value(memory)

    return read


def _bar1(value: Callable[[Bar1], int]) -> Callable[[MigRow], Number | None]:
    """Ask the window to the memory, which belongs to the GPU instance as the memory does."""

    def read(row: MigRow) -> Number | None:
        bar1 = row.reading.bar1
        return None if bar1 is None or row.reading.memory_shared else value(bar1)

    return read


def _info(row: MigRow) -> Iterator[Labelled]:
    yield (str(row.reading.gi), str(row.reading.ci), row.reading.profile or ""), 1


_OWN: tuple[AnyFamily, ...] = (
    LabelledFamily(
        "gpuslice_mig_info",
        "info",
        "mig",
        "Identity of a MIG device: compute instance ci inside GPU instance gi of the GPU uuid.",
        ("gi", "ci", "profile"),
        _info,
        group="core",
    ),
    Family(
        "gpuslice_mig_memory_total_bytes",
        "gauge",
        "mig",
        "Frame buffer of the MIG device; absent where several compute instances share one GPU instance.",
        _memory(lambda memory: memory.total),
        group="memory",
    ),
    Family(
        "gpuslice_mig_memory_used_bytes",
        "gauge",
        "mig",
        "Frame buffer in use on the MIG device; absent where compute instances share it.",
        _memory(lambda memory: memory.used),
        group="memory",
    ),
    Family(
        "gpuslice_mig_memory_free_bytes",
        "gauge",
        "mig",
        "Frame buffer free on the MIG device; absent where compute instances share it.",
        _memory(lambda memory: memory.free),
        group="memory",
    ),
    Family(
        "gpuslice_mig_memory_reserved_bytes",
        "gauge",
        "mig",
        "Frame buffer of the MIG device that the driver keeps; absent with drivers that cannot tell.",
        _memory(lambda memory: memory.reserved),
        group="memory",
    ),
    Family(
        "gpuslice_mig_compute_slices",
        "gauge",
        "mig",
        "Compute slices of the compute instance (7 make a whole A100 or H100, 4 an A30).",
        lambda row: row.reading.compute_slices,
        group="core",
    ),
    Family(
        "gpuslice_mig_memory_slices",
        "gauge",
        "mig",
        "Memory slices of the GPU instance (8 make a whole A100 or H100, 4 an A30).",
        lambda row: row.reading.memory_slices,
        group="core",
    ),
    Family(
        "gpuslice_mig_multiprocessors",
        "gauge",
        "mig",
        "Streaming multiprocessors of the MIG device.",
        lambda row: row.reading.multiprocessors,
        group="core",
    ),
    LabelledFamily(
        "gpuslice_mig_engines",
        "gauge",
        "mig",
        "Engines that the GPU instance of the MIG device has: copy, encoder, decoder, jpeg, ofa.",
        ("engine",),
        lambda row: (((engine,), count) for engine, count in row.reading.engines.items()),
        group="core",
    ),
    Family(
        "gpuslice_mig_bar1_total_bytes",
        "gauge",
        "mig",
        "Size of the window through which the host reaches the frame buffer of the MIG device; absent where "
        "compute instances share it.",
        _bar1(lambda bar1: bar1.total),
        group="bar1",
    ),
    Family(
        "gpuslice_mig_bar1_used_bytes",
        "gauge",
        "mig",
        "Part of that window that is in use.",
        _bar1(lambda bar1: bar1.used),
        group="bar1",
    ),
    Family(
        "gpuslice_mig_utilization_ratio",
        "gauge",
        "mig",
        "Share of time in which the partition was busy, where its driver tells (AMD).",
        lambda row: scaled(row.reading.utilization_percent, 100),
        group="utilization",
    ),
    LabelledFamily(
        "gpuslice_mig_slices",
        "gauge",
        "mig",
        "Slices that the device plugin has cut this MIG device into, healthy or not, by resource.",
        ("resource",),
        lambda row: (((count.resource,), count.offered) for count in row.slices),
        group="sharing",
    ),
    slices_unhealthy("mig", "MIG device"),
    LabelledFamily(
        "gpuslice_mig_slices_allocated",
        "gauge",
        "mig",
        "Slices of this MIG device that containers hold, by resource.",
        ("resource",),
        lambda row: (((count.resource,), count.allocated) for count in row.slices),
        group="sharing",
    ),
    Family(
        "gpuslice_mig_holders",
        "gauge",
        "mig",
        "Distinct containers that hold a slice of this MIG device.",
        lambda row: row.holders,
        group="sharing",
    ),
    Family(
        "gpuslice_mig_unattributed_memory_bytes",
        "gauge",
        "mig",
        "Frame buffer in use on the MIG device that belongs to no known container.",
        lambda row: row.unattributed_memory,
        group="sharing",
    ),
    Family(
        "gpuslice_mig_unattributed_utilization_ratio",
        "gauge",
        "mig",
        "Compute of the MIG device, as a share of the physical GPU, that belongs to no known container.",
        lambda row: row.unattributed_utilization,
        group="sharing",
    ),
    job_info("mig", "GPU instance of the MIG device"),
)

MIG: tuple[AnyFamily, ...] = (*_OWN, *MIG_PROFILING)
"""Families with one entity per MIG device (a MigRow), labelled ``uuid`` and ``mig_uuid``."""
