"""The rows of physical GPUs: who they are, their memory and their activity; the other rows beside them."""

from collections.abc import Callable, Iterator

from exporter.metrics.family import (
    AnyFamily,
    Family,
    Labelled,
    LabelledFamily,
    Number,
    answering,
    reading,
    scaled,
)
from exporter.metrics.gpu_health import GPU_EVENTS, GPU_HEALTH
from exporter.metrics.gpu_links import GPU_LINKS
from exporter.metrics.gpu_power import GPU_POWER
from exporter.metrics.gpu_sharing import GPU_SHARING
from exporter.metrics.profiling import GPU_PROFILING
from exporter.metrics.vgpu import GPU_VGPU
from exporter.model import Bar1, EncoderSessions, GpuReading, GpuRow, Memory

_MICROSECONDS = 1_000_000
_MIG_MODE = {True: "enabled", False: "disabled", None: ""}


def _memory(value: Callable[[Memory], int | None]) -> Callable[[GpuRow], Number | None]:
    return reading(lambda gpu: None if gpu.memory is None else value(gpu.memory))


def _bar1(value: Callable[[Bar1], int]) -> Callable[[GpuRow], Number | None]:
    return reading(lambda gpu: None if gpu.bar1 is None else value(gpu.bar1))


def _encoding(value: Callable[[EncoderSessions], Number]) -> Callable[[GpuRow], Number | None]:
    """Ask a mean over the encoding sessions; without a session there is none."""

    def read(gpu: GpuReading) -> Number | None:
        sessions = gpu.encoder_sessions
        return None if sessions is None or not sessions.count else value(sessions)

    return reading(read)


def _info(row: GpuRow) -> Iterator[Labelled]:
    gpu, found = row.identity, row.reading
    minor = "" if gpu.minor is None else str(gpu.minor)
    yield (
        (
            str(gpu.index) if gpu.index >= 0 else "",
            f"nvidia{minor}" if minor else "",
            minor,
            gpu.model,
            gpu.pci_bus_id,
            gpu.vendor,
            gpu.serial or "",
            _MIG_MODE[found.mig_enabled if found and gpu.vendor == "nvidia" else None],
            row.sharing,
            gpu.architecture or "",
            gpu.vbios or "",
        ),
        1,
    )


def _board(row: GpuRow) -> Iterator[Labelled]:
    gpu = row.identity
    facts = (gpu.part_number, gpu.inforom, gpu.gsp_firmware, gpu.compute_capability)
    if any(facts):
        yield tuple(fact or "" for fact in facts), 1


def _engine(name: str, title: str) -> Family[GpuRow]:
    return Family(
        f"gpuslice_gpu_{name}_utilization_ratio",
        "gauge",
        "gpu",
        f"Share of time in which the {title} was busy.",
        reading(lambda gpu: scaled(gpu.engine_percent.get(name), 100)),  # type: ignore[call-overload]
        group="engines",
    )


_CORE: tuple[AnyFamily, ...] = (
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
            "vbios",
        ),
        _info,
        group="core",
    ),
    LabelledFamily(
        "gpuslice_gpu_board_info",
        "info",
        "gpu",
        "The board and its firmware: part number, versions of the InfoROM and of the GSP's firmware, and the "
        "compute capability.",
        ("part_number", "inforom", "gsp_firmware", "compute_capability"),
        _board,
        group="core",
    ),
    Family(
        "gpuslice_gpu_up",
        "gauge",
        "gpu",
        "1 if the GPU was read, 0 if it is lost, failing, no longer answering, or its driver is given up.",
        lambda row: None if row.unread else int(answering(row) is not None),
        group="core",
    ),
    Family(
        "gpuslice_gpu_read_timestamp_seconds",
        "gauge",
        "gpu",
        "Unix time at which this GPU was read.",
        reading(lambda gpu: gpu.read_at or None),
        group="core",
    ),
    Family(
        "gpuslice_nvml_unsupported",
        "gauge",
        "gpu",
        "Driver calls that this GPU does not support; their series are absent.",
        reading(lambda gpu: len(gpu.unsupported) if gpu.identity.vendor == "nvidia" else None),
        group="core",
    ),
)

_ACTIVITY: tuple[AnyFamily, ...] = (
    Family(
        "gpuslice_gpu_memory_total_bytes",
        "gauge",
        "gpu",
        "Frame buffer of the GPU: used + free + reserved.",
        _memory(lambda memory: memory.total),
        group="memory",
    ),
    Family(
        "gpuslice_gpu_memory_used_bytes",
        "gauge",
        "gpu",
        "Frame buffer in use, without what the driver reserves (with it, where reserved is absent).",
        _memory(lambda memory: memory.used),
        group="memory",
    ),
    Family(
        "gpuslice_gpu_memory_free_bytes",
        "gauge",
        "gpu",
        "Frame buffer that is free.",
        _memory(lambda memory: memory.free),
        group="memory",
    ),
    Family(
        "gpuslice_gpu_memory_reserved_bytes",
        "gauge",
        "gpu",
        "Frame buffer that the driver keeps for itself; absent with drivers that cannot tell.",
        _memory(lambda memory: memory.reserved),
        group="memory",
    ),
    Family(
        "gpuslice_gpu_bar1_total_bytes",
        "gauge",
        "gpu",
        "Size of the window through which the host reaches the frame buffer.",
        _bar1(lambda bar1: bar1.total),
        group="bar1",
    ),
    Family(
        "gpuslice_gpu_bar1_used_bytes",
        "gauge",
        "gpu",
        "Part of that window that is in use.",
        _bar1(lambda bar1: bar1.used),
        group="bar1",
    ),
    Family(
        "gpuslice_gpu_utilization_ratio",
        "gauge",
        "gpu",
        "Share of time in which a kernel was running on the GPU.",
        reading(lambda gpu: scaled(gpu.utilization_percent, 100)),
        group="utilization",
    ),
    Family(
        "gpuslice_gpu_memory_copy_utilization_ratio",
        "gauge",
        "gpu",
        "Share of time in which the GPU's memory was being read or written.",
        reading(lambda gpu: scaled(gpu.memory_copy_percent, 100)),
        group="utilization",
    ),
    _engine("encoder", "video encoder"),
    _engine("decoder", "video decoder"),
    _engine("jpeg", "JPEG decoder"),
    _engine("ofa", "optical flow accelerator"),
    Family(
        "gpuslice_gpu_encoder_sessions",
        "gauge",
        "gpu",
        "Sessions of video encoding now.",
        reading(lambda gpu: None if gpu.encoder_sessions is None else gpu.encoder_sessions.count),
        group="engines",
    ),
    Family(
        "gpuslice_gpu_encoder_frames_per_second",
        "gauge",
        "gpu",
        "Mean frame rate of the encoding sessions.",
        _encoding(lambda sessions: sessions.average_fps),
        group="engines",
    ),
    Family(
        "gpuslice_gpu_encoder_latency_seconds",
        "gauge",
        "gpu",
        "Mean time that encoding a frame takes.",
        _encoding(lambda sessions: sessions.average_latency_microseconds / _MICROSECONDS),
        group="engines",
    ),
)

GPU: tuple[AnyFamily, ...] = (
    *_CORE,
    *_ACTIVITY,
    *GPU_PROFILING,
    *GPU_POWER,
    *GPU_LINKS,
    *GPU_HEALTH,
    *GPU_EVENTS,
    *GPU_VGPU,
    *GPU_SHARING,
)
"""Families with one entity per physical GPU (a GpuRow), labelled ``uuid``."""
