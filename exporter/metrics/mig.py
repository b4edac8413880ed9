"""Rows of MIG devices: size, memory, utilization, slices and holders."""

from exporter.metrics.family import MIG_ROWS, AnyFamily, keyed, scaled
from exporter.metrics.gpu_sharing import job_info, slices
from exporter.metrics.profiling import MIG_PROFILING
from exporter.model import MigReading


def _unshared(reading: MigReading) -> MigReading | None:
    """Return the reading unless compute instances share the memory: a sum would count it twice."""
    return None if reading.memory_shared else reading


_READING = MIG_ROWS.of(lambda row: row.reading, "core")
_MEMORY = _READING.of(_unshared).of(lambda reading: reading.memory, "memory")
_BAR1 = _READING.standard.of(_unshared).of(lambda reading: reading.bar1, "bar1")
_SHARING = MIG_ROWS.grouped("sharing")

MIG: tuple[AnyFamily, ...] = (
    _READING.info(
        "info",
        ("gi", "ci"),
        "Identity of a MIG device: compute instance ci in GPU instance gi of the GPU uuid.",
        lambda mig: (str(mig.gi), str(mig.ci)),
    ),
    _MEMORY.gauge(
        "memory_total_bytes",
        "Total memory of the MIG device; absent if compute instances share it.",
        lambda memory: memory.total,
    ),
    _MEMORY.gauge(
        "memory_used_bytes",
        "Memory in use on the MIG device; absent if compute instances share it.",
        lambda memory: memory.used,
    ),
    _MEMORY.standard.gauge(
        "memory_free_bytes",
        "Free memory of the MIG device; absent if compute instances share it.",
        lambda memory: memory.free,
    ),
    _MEMORY.gauge(
        "memory_reserved_bytes",
        "Memory of the MIG device reserved by the driver; absent if the driver does not report it or compute "
        "instances share it.",
        lambda memory: memory.reserved,
    ),
    _READING.standard.gauge(
        "compute_slices",
        "Compute slices of the compute instance; a whole A100 or H100 has 7, an A30 has 4.",
        lambda mig: mig.compute_slices,
    ),
    _READING.standard.gauge(
        "memory_slices",
        "Memory slices of the GPU instance; a whole A100 or H100 has 8, an A30 has 4.",
        lambda mig: mig.memory_slices,
    ),
    _READING.standard.gauge(
        "multiprocessors",
        "Streaming multiprocessors (SMs) of the MIG device.",
        lambda mig: mig.multiprocessors,
    ),
    _READING.standard.gauge_by(
        "engines",
        ("engine",),
        "Engines in the GPU instance of the MIG device, by type: copy, encoder, decoder, jpeg, ofa.",
        lambda mig: keyed(mig.engines),
    ),
    _BAR1.gauge(
        "bar1_total_bytes",
        "Total BAR1 memory of the MIG device: the PCIe window for host access to its memory; absent if "
        "compute instances share it.",
        lambda bar1: bar1.total,
    ),
    _BAR1.gauge(
        "bar1_used_bytes",
        "BAR1 memory in use on the MIG device; absent if compute instances share it.",
        lambda bar1: bar1.used,
    ),
    _READING.grouped("utilization").gauge(
        "utilization_ratio",
        "Utilization of an AMD partition, as a share of time; absent on NVIDIA MIG devices.",
        lambda mig: scaled(mig.utilization_percent, 100),
    ),
    *slices(_SHARING, "MIG device"),
    _SHARING.gauge(
        "holders", "Distinct containers that hold a slice of this MIG device.", lambda row: row.holders
    ),
    _SHARING.gauge(
        "unattributed_memory_bytes",
        "Memory in use on the MIG device not attributed to any container.",
        lambda row: row.unattributed_memory,
    ),
    _SHARING.gauge(
        "unattributed_utilization_ratio",
        "Compute usage of the MIG device not attributed to any container, as a share of the physical GPU.",
        lambda row: row.unattributed_utilization,
    ),
    job_info(MIG_ROWS, "GPU instance of the MIG device"),
    *MIG_PROFILING,
)
"""Families of MIG devices (MigRow)."""
