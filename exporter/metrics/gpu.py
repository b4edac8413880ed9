"""The rows of physical GPUs: what the driver says of each, and how each is cut up and held."""

from collections.abc import Callable, Iterator

from exporter.metrics.family import AnyFamily, Family, Labelled, LabelledFamily, Number, scaled
from exporter.model import GpuReading, GpuRow, Memory

_MEGAHERTZ = 1_000_000
_MIG_MODE = {True: "enabled", False: "disabled", None: ""}


def _reading(value: Callable[[GpuReading], Number | None]) -> Callable[[GpuRow], Number | None]:
    """Ask the reading, where there is one of a GPU that answers."""

    def read(row: GpuRow) -> Number | None:
        reading = row.reading
        return None if reading is None or not reading.up else value(reading)

    return read


def _memory(value: Callable[[Memory], int | None]) -> Callable[[GpuRow], Number | None]:
    return _reading(lambda reading: None if reading.memory is None else value(reading.memory))


def _info(row: GpuRow) -> Iterator[Labelled]:
    gpu, reading = row.identity, row.reading
    minor = "" if gpu.minor is None else str(gpu.minor)
    mig = _MIG_MODE[reading.mig_enabled if reading else None]
    yield (
        (
            str(gpu.index),
            f"nvidia{minor}" if minor else "",
            minor,
            gpu.model,
            gpu.pci_bus_id,
            gpu.vendor,
            gpu.serial or "",
            mig,
            row.sharing,
            gpu.architecture or "",
        ),
        1,
    )


def _compute_mode(row: GpuRow) -> Iterator[Labelled]:
    if row.reading and row.reading.up and row.reading.compute_mode:
        yield (row.reading.compute_mode,), 1


def _clocks(row: GpuRow) -> Iterator[Labelled]:
    if row.reading and row.reading.up:
        for clock, megahertz in row.reading.clocks_megahertz.items():
            yield (clock,), megahertz * _MEGAHERTZ


def _mig_slices(row: GpuRow) -> Iterator[Labelled]:
    yield ("used",), row.mig_slices_used
    yield ("free",), row.mig_slices_free


GPU: tuple[AnyFamily, ...] = (
    LabelledFamily(
        "gpuslice_gpu_info",
        "info",
        "gpu",
        "Identity of a physical GPU. gpu is its NVML index, minor the N of /dev/nvidiaN, "
        "sharing the way it is shared now (exclusive, time-slicing, mps, mig, ...).",
        (
            "gpu",
            "device",
            "minor",
            "model",
            "pci_bus_id",
            "vendor",
            "serial",
            "mig",
            "sharing",
            "architecture",
        ),
        _info,
    ),
    LabelledFamily(
        "gpuslice_gpu_compute_mode_info",
        "info",
        "gpu",
        "Compute mode of the GPU: default, exclusive_process, exclusive_thread or prohibited.",
        ("compute_mode",),
        _compute_mode,
    ),
    Family(
        "gpuslice_gpu_up",
        "gauge",
        "gpu",
        "1 if the GPU was read, 0 if it is lost, failing or no longer answering.",
        lambda row: int(row.reading is not None and row.reading.up),
    ),
    Family(
        "gpuslice_gpu_read_timestamp_seconds",
        "gauge",
        "gpu",
        "Unix time at which this GPU was read.",
        _reading(lambda reading: reading.read_at or None),
    ),
    Family(
        "gpuslice_gpu_memory_total_bytes",
        "gauge",
        "gpu",
        "Frame buffer of the GPU: used + free + reserved.",
        _memory(lambda memory: memory.total),
    ),
    Family(
        "gpuslice_gpu_memory_used_bytes",
        "gauge",
        "gpu",
        "Frame buffer in use, without what the driver reserves (with it, where reserved is absent).",
        _memory(lambda memory: memory.used),
    ),
    Family(
        "gpuslice_gpu_memory_free_bytes",
        "gauge",
        "gpu",
        "Frame buffer that is free.",
        _memory(lambda memory: memory.free),
    ),
    Family(
        "gpuslice_gpu_memory_reserved_bytes",
        "gauge",
        "gpu",
        "Frame buffer that the driver keeps for itself; absent with drivers that cannot tell.",
        _memory(lambda memory: memory.reserved),
    ),
    Family(
        "gpuslice_gpu_utilization_ratio",
        "gauge",
        "gpu",
        "Share of time in which a kernel was running on the GPU.",
        _reading(lambda reading: scaled(reading.utilization_percent, 100)),
    ),
    Family(
        "gpuslice_gpu_memory_copy_utilization_ratio",
        "gauge",
        "gpu",
        "Share of time in which the GPU's memory was being read or written.",
        _reading(lambda reading: scaled(reading.memory_copy_percent, 100)),
    ),
    Family(
        "gpuslice_gpu_power_watts",
        "gauge",
        "gpu",
        "Power that the GPU draws.",
        _reading(lambda reading: scaled(reading.power_milliwatts, 1000)),
    ),
    Family(
        "gpuslice_gpu_energy_joules_total",
        "counter",
        "gpu",
        "Energy that the GPU has drawn since the driver was loaded.",
        _reading(lambda reading: scaled(reading.energy_millijoules, 1000)),
    ),
    Family(
        "gpuslice_gpu_temperature_celsius",
        "gauge",
        "gpu",
        "Temperature of the GPU's core.",
        _reading(lambda reading: reading.temperature_celsius),
    ),
    Family(
        "gpuslice_gpu_memory_temperature_celsius",
        "gauge",
        "gpu",
        "Temperature of the GPU's memory.",
        _reading(lambda reading: reading.memory_temperature_celsius),
    ),
    LabelledFamily(
        "gpuslice_gpu_clock_hertz",
        "gauge",
        "gpu",
        "Clock at which a part of the GPU runs now: sm, memory, graphics or video.",
        ("clock",),
        _clocks,
    ),
    Family(
        "gpuslice_gpu_fan_ratio",
        "gauge",
        "gpu",
        "Speed of the fan as a share of its greatest speed; absent on boards without one.",
        _reading(lambda reading: scaled(reading.fan_percent, 100)),
    ),
    Family(
        "gpuslice_gpu_pcie_replays_total",
        "counter",
        "gpu",
        "Packets that had to be sent again over PCIe.",
        _reading(lambda reading: reading.pcie_replays),
    ),
    LabelledFamily(
        "gpuslice_gpu_slices",
        "gauge",
        "gpu",
        "Slices of this GPU that the device plugin offers, by resource.",
        ("resource",),
        lambda row: (((count.resource,), count.offered) for count in row.slices),
    ),
    LabelledFamily(
        "gpuslice_gpu_slices_allocated",
        "gauge",
        "gpu",
        "Slices of this GPU that containers hold, by resource.",
        ("resource",),
        lambda row: (((count.resource,), count.allocated) for count in row.slices),
    ),
    Family(
        "gpuslice_gpu_holders",
        "gauge",
        "gpu",
        "Distinct containers that hold a slice of this GPU or of one of its MIG devices.",
        lambda row: row.holders,
    ),
    LabelledFamily(
        "gpuslice_gpu_mig_compute_slices",
        "gauge",
        "gpu",
        "Compute slices of a GPU in MIG mode: used by MIG devices, or free for new ones.",
        ("state",),
        _mig_slices,
    ),
    Family(
        "gpuslice_gpu_memory_entitled_bytes",
        "gauge",
        "gpu",
        "Sum of what the holders are entitled to; more than the total means over-commitment.",
        lambda row: row.memory_entitled,
    ),
    Family(
        "gpuslice_gpu_unattributed_memory_bytes",
        "gauge",
        "gpu",
        "Frame buffer in use that belongs to no known container.",
        lambda row: row.unattributed_memory,
    ),
    Family(
        "gpuslice_gpu_unattributed_utilization_ratio",
        "gauge",
        "gpu",
        "Utilization of the GPU that belongs to no known container.",
        lambda row: row.unattributed_utilization,
    ),
    Family(
        "gpuslice_gpu_unattributed_energy_joules_total",
        "counter",
        "gpu",
        "Energy that was given to no container.",
        lambda row: row.unattributed_energy_joules,
    ),
    Family(
        "gpuslice_nvml_unsupported",
        "gauge",
        "gpu",
        "Driver calls that this GPU does not support; their series are absent.",
        _reading(lambda reading: len(reading.unsupported)),
    ),
)
"""Families with one entity per physical GPU (a GpuRow), labelled ``uuid``."""
