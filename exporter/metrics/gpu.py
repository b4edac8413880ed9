"""Rows of physical GPUs: identity, memory and utilization; the other files have the rest."""

from collections.abc import Mapping
from dataclasses import replace

from exporter.metrics.family import GPU_ROWS, READING, AnyFamily, answering, entry, scaled
from exporter.metrics.gpu_health import GPU_CONDITIONS, GPU_EVENTS, GPU_HEALTH
from exporter.metrics.gpu_links import GPU_LINKS
from exporter.metrics.gpu_parts import GPU_VGPU
from exporter.metrics.gpu_power import GPU_POWER
from exporter.metrics.holders import GPU_SHARING
from exporter.metrics.profiling import GPU_PROFILING
from exporter.model import EncoderSessions, GpuReading, GpuRow
from exporter.model.readings import Engine

_MICROSECONDS = 1_000_000
_ENGINE_NAMES: Mapping[Engine, str] = {
    "encoder": "Video encoder",
    "decoder": "Video decoder",
    "jpeg": "JPEG decoder",
    "ofa": "Optical flow accelerator (OFA)",
}
_MIG_MODE = {True: "enabled", False: "disabled", None: ""}


def _info(row: GpuRow) -> tuple[str, ...]:
    gpu, reading = row.identity, row.reading
    minor = "" if gpu.minor is None else str(gpu.minor)
    return (
        f"nvidia{minor}" if minor else "",
        minor,
        gpu.model,
        gpu.pci_bus_id,
        gpu.vendor,
        gpu.serial or "",
        _MIG_MODE[reading.mig_enabled if reading and gpu.vendor == "nvidia" else None],
        row.sharing,
        gpu.architecture or "",
        gpu.vbios or "",
    )


def _board(row: GpuRow) -> tuple[str, ...] | None:
    gpu = row.identity
    facts = (gpu.part_number, gpu.inforom, gpu.gsp_firmware, gpu.compute_capability)
    return tuple(fact or "" for fact in facts) if any(facts) else None


def _encoding(gpu: GpuReading) -> EncoderSessions | None:
    """Return the encoder sessions; None without one, because their averages are then undefined."""
    sessions = gpu.encoder_sessions
    return sessions if sessions is not None and sessions.count else None


_GPU = GPU_ROWS.grouped("core")
_MEMORY = READING.of(lambda gpu: gpu.memory, "memory")
_PROTECTED = READING.full.reading("protected_memory").of(lambda gpu: gpu.protected_memory, "confidential")
_BAR1 = READING.standard.reading("bar1").of(lambda gpu: gpu.bar1, "bar1")
_UTILIZATION = READING.grouped("utilization")
_ENGINES = READING.standard.grouped("engines")
_SESSIONS = _ENGINES.reading("encoder_sessions").of(lambda gpu: gpu.encoder_sessions)
_ENCODING = _ENGINES.reading("encoder_sessions").of(_encoding)

_CORE: tuple[AnyFamily, ...] = (
    _GPU.info(
        "info{device, minor, model, pci_bus_id, vendor, serial, mig, sharing, architecture, vbios}",
        "Identity of a physical GPU: minor is the N of /dev/nvidiaN, sharing the current "
        "sharing mode (exclusive, time-slicing, mps, mig, ...).",
        _info,
    ),
    _GPU.standard.info(
        "board_info{part_number, inforom, gsp_firmware, compute_capability}",
        "Board part number, InfoROM version, GSP firmware version and CUDA compute capability of the GPU.",
        _board,
    ),
    _GPU.flag(
        "up",
        "1 if the last read succeeded; 0 if the GPU is lost or unresponsive, or the driver is released.",
        lambda row: None if row.unread else answering(row) is not None,
    ),
    READING.grouped("core").gauge(
        "read_timestamp_seconds",
        "Unix time of the last successful read of the GPU.",
        lambda gpu: gpu.read_at or None,
    ),
    READING.standard.grouped("core").gauge(
        "slow_read_timestamp_seconds",
        "Unix time of the oldest reading of the GPU among those that are read once a minute and after "
        "events: ECC and memory repair, links, modes and limits.",
        lambda gpu: gpu.slow_read_at,
    ),
    replace(READING, prefix="gpuslice_", group="core").standard.gauge(
        "nvml_unsupported",
        "NVML calls that this GPU or its driver does not support; their series are absent.",
        lambda gpu: len(gpu.unsupported) if gpu.identity.vendor == "nvidia" else None,
    ),
)

_ACTIVITY: tuple[AnyFamily, ...] = (
    _MEMORY.gauge(
        "memory_total_bytes", "Total GPU memory: used, free and reserved.", lambda memory: memory.total
    ),
    _MEMORY.gauge(
        "memory_used_bytes",
        "GPU memory in use; includes memory reserved by the driver only if "
        "gpuslice_gpu_memory_reserved_bytes is absent.",
        lambda memory: memory.used,
    ),
    _MEMORY.standard.gauge("memory_free_bytes", "Free GPU memory.", lambda memory: memory.free),
    _MEMORY.gauge(
        "memory_reserved_bytes",
        "GPU memory reserved by the driver; absent if the driver does not report it.",
        lambda memory: memory.reserved,
    ),
    _PROTECTED.gauge(
        "protected_memory_total_bytes",
        "GPU memory that confidential computing protects.",
        lambda memory: memory.total,
    ),
    _PROTECTED.gauge(
        "protected_memory_used_bytes", "Protected GPU memory in use.", lambda memory: memory.used
    ),
    _BAR1.gauge(
        "bar1_total_bytes",
        "Total BAR1 memory of the GPU: the PCIe window for host access to GPU memory.",
        lambda bar1: bar1.total,
    ),
    _BAR1.gauge("bar1_used_bytes", "BAR1 memory in use on the GPU.", lambda bar1: bar1.used),
    _UTILIZATION.gauge(
        "utilization_ratio",
        "GPU utilization: share of time in which at least one kernel was running.",
        lambda gpu: scaled(gpu.utilization_percent, 100),
    ),
    _UTILIZATION.gauge(
        "memory_copy_utilization_ratio",
        "Memory utilization: share of time in which GPU memory was being read or written.",
        lambda gpu: scaled(gpu.memory_copy_percent, 100),
    ),
    *(
        _ENGINES.reading(f"engine_percent.{engine}").gauge(
            f"{engine}_utilization_ratio",
            f"{name} utilization, as a share of time.",
            entry("engine_percent", engine, 100),
        )
        for engine, name in _ENGINE_NAMES.items()
    ),
    _SESSIONS.gauge(
        "encoder_sessions", "Active video encoder sessions of the GPU.", lambda sessions: sessions.count
    ),
    _ENCODING.gauge(
        "encoder_frames_per_second",
        "Average frame rate of the active encoder sessions; absent without a session.",
        lambda sessions: sessions.average_fps,
    ),
    _ENCODING.gauge(
        "encoder_latency_seconds",
        "Average time to encode a frame in the active encoder sessions; absent without a session.",
        lambda sessions: sessions.average_latency_microseconds / _MICROSECONDS,
    ),
)

# Families of physical GPUs (GpuRow).
GPU: tuple[AnyFamily, ...] = (
    *_CORE,
    *GPU_CONDITIONS,
    *_ACTIVITY,
    *GPU_PROFILING,
    *GPU_POWER,
    *GPU_LINKS,
    *GPU_HEALTH,
    *GPU_EVENTS,
    *GPU_VGPU,
    *GPU_SHARING,
)
