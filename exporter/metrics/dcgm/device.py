"""Fields of use: clocks, temperature, power, PCIe, utilization, memory, modes, and profiling metrics.

Most fields are of the GPU; memory and the activity of profiling metrics also of GPU instances of MIG. Sizes
have their names of 4.9, in bytes: ``both_names.py`` makes the old ones of them.
"""

from typing import get_args

from exporter.metrics.dcgm.entities import DCGM_ROWS, READING, DcgmRow
from exporter.metrics.family import Family, entry, scaled
from exporter.model import GpuReading, Memory, Number
from exporter.model.hardware import ComputeMode, Virtualization
from exporter.model.readings import Activity, Cycles, Traffic

# NVML's number of a mode is its place here.
_COMPUTE_MODES = get_args(ComputeMode)
_VIRTUALIZATIONS = get_args(Virtualization)
_KIBIBYTE = 1024

_CLOCKS = READING.grouped("clocks")
_VIDEO_CLOCK = _CLOCKS.reading("clocks_megahertz.video")
_APP_CLOCKS = _CLOCKS.reading("clocks_application_megahertz")
_THERMAL = READING.grouped("thermal")
_POWER = READING.grouped("power")
_PCIE = READING.grouped("pcie")
_PCIE_LINK = _PCIE.of(lambda gpu: gpu.pcie_link)
_PCIE_THROUGHPUT = READING.grouped("pcie_throughput")
_UTILIZATION = READING.grouped("utilization")
_ENGINES = READING.grouped("engines")
_MEMORY = DCGM_ROWS.of(lambda row: row.memory, "memory")
_BAR1 = DCGM_ROWS.reading("bar1").of(lambda row: row.bar1, "bar1")
_MODES = READING.grouped("modes")
_VGPU = READING.grouped("vgpu")


def _kibibytes(gpu: GpuReading, direction: Traffic) -> int | None:
    rate = gpu.pcie_throughput.get(direction)
    return None if rate is None else rate // _KIBIBYTE


def _used_share(memory: Memory) -> float | None:
    usable = memory.total - (memory.reserved or 0)
    return round(memory.used / usable, 6) if usable > 0 else None


def _place(words: tuple[str, ...], word: str | None) -> Number | None:
    return None if word is None else words.index(word)


_CLOCK_FIELDS = (
    (_CLOCKS, "DEV_SM_CLOCK", "clocks_megahertz", "sm", "SM clock"),
    (_CLOCKS, "DEV_MEM_CLOCK", "clocks_megahertz", "memory", "Memory clock"),
    (_VIDEO_CLOCK, "DEV_VIDEO_CLOCK", "clocks_megahertz", "video", "Video engine clock"),
    (_APP_CLOCKS, "DEV_APP_SM_CLOCK", "clocks_application_megahertz", "sm", "SM applications clock"),
    (_APP_CLOCKS, "DEV_APP_MEM_CLOCK", "clocks_application_megahertz", "memory", "Memory applications clock"),
    (_CLOCKS, "DEV_MAX_SM_CLOCK", "clocks_max_megahertz", "sm", "Maximum SM clock"),
    (_CLOCKS, "DEV_MAX_MEM_CLOCK", "clocks_max_megahertz", "memory", "Maximum memory clock"),
    (_CLOCKS, "DEV_MAX_VIDEO_CLOCK", "clocks_max_megahertz", "video", "Maximum video engine clock"),
)
CLOCKS: tuple[Family[DcgmRow], ...] = tuple(
    rows.gauge(name, f"{text} (MHz).", entry(field, clock))
    for rows, name, field, clock, text in _CLOCK_FIELDS
)

_THRESHOLDS = (
    ("DEV_MEM_MAX_OP_TEMP", "memory", "Maximum operating temperature of the memory"),
    ("DEV_GPU_MAX_OP_TEMP", "gpu", "Maximum operating temperature of the GPU"),
    ("DEV_SLOWDOWN_TEMP", "slowdown", "Slowdown temperature of the GPU"),
    ("DEV_SHUTDOWN_TEMP", "shutdown", "Shutdown temperature of the GPU"),
)
HEAT: tuple[Family[DcgmRow], ...] = (
    _THERMAL.gauge("DEV_MEMORY_TEMP", "Memory temperature (C).", lambda gpu: gpu.memory_temperature_celsius),
    _THERMAL.gauge("DEV_GPU_TEMP", "GPU temperature (C).", lambda gpu: gpu.temperature_celsius),
    _THERMAL.reading("temperature_margin_celsius").gauge(
        "DEV_GPU_TEMP_LIMIT",
        "Temperature margin to the nearest slowdown threshold (C).",
        lambda gpu: gpu.temperature_margin_celsius,
    ),
    *(
        _THERMAL.gauge(name, f"{text} (C).", entry("temperature_thresholds_celsius", threshold))
        for name, threshold, text in _THRESHOLDS
    ),
    _THERMAL.reading("fan_percent").gauge(
        "DEV_FAN_SPEED", "Fan speed as a share of the maximum (%).", lambda gpu: gpu.fan_percent
    ),
)

_LIMITS = (
    ("DEV_POWER_MGMT_LIMIT_MIN", "min", "Minimum configurable power limit"),
    ("DEV_POWER_MGMT_LIMIT_MAX", "max", "Maximum configurable power limit"),
    ("DEV_POWER_MGMT_LIMIT_DEF", "default", "Default power limit"),
    ("DEV_ENFORCED_POWER_LIMIT", "enforced", "Enforced power limit"),
)
POWER: tuple[Family[DcgmRow], ...] = (
    _POWER.gauge("DEV_POWER_USAGE", "Power draw (W).", lambda gpu: scaled(gpu.power_milliwatts, 1000)),
    _POWER.gauge(
        "DEV_POWER_USAGE_INSTANT",
        "Instantaneous power draw (W).",
        entry("power_parts_milliwatts", "instant", 1000),
    ),
    _POWER.counter(
        "DEV_TOTAL_ENERGY_CONSUMPTION",
        "Energy consumption since the driver was loaded (mJ); read every 15 s.",
        lambda gpu: gpu.energy_millijoules,
    ),
    _POWER.reading("power_limits_milliwatts.configured").gauge(
        "DEV_POWER_MGMT_LIMIT",
        "Configured power limit (W).",
        entry("power_limits_milliwatts", "configured", 1000),
    ),
    *(
        _POWER.gauge(name, f"{text} (W).", entry("power_limits_milliwatts", limit, 1000))
        for name, limit, text in _LIMITS
    ),
)

PCIE: tuple[Family[DcgmRow], ...] = (
    _PCIE_THROUGHPUT.gauge(
        "DEV_PCIE_TX_THROUGHPUT",
        "PCIe transmit throughput (KB/s).",
        lambda gpu: _kibibytes(gpu, "pcie_transmit"),
    ),
    _PCIE_THROUGHPUT.gauge(
        "DEV_PCIE_RX_THROUGHPUT",
        "PCIe receive throughput (KB/s).",
        lambda gpu: _kibibytes(gpu, "pcie_receive"),
    ),
    _PCIE.counter(
        "DEV_PCIE_REPLAY_COUNTER",
        "PCIe replays: packets that had to be retransmitted.",
        lambda gpu: gpu.pcie_replays,
    ),
    _PCIE_LINK.gauge("DEV_PCIE_LINK_GEN", "Current PCIe link generation.", lambda link: link.generation),
    _PCIE_LINK.gauge("DEV_PCIE_LINK_WIDTH", "Current PCIe link width in lanes.", lambda link: link.width),
    _PCIE_LINK.gauge(
        "DEV_PCIE_MAX_LINK_GEN",
        "Maximum PCIe link generation that both GPU and slot support.",
        lambda link: link.max_generation,
    ),
    _PCIE_LINK.gauge(
        "DEV_PCIE_MAX_LINK_WIDTH",
        "Maximum PCIe link width in lanes that both GPU and slot support.",
        lambda link: link.max_width,
    ),
)

UTILIZATION: tuple[Family[DcgmRow], ...] = (
    _UTILIZATION.gauge("DEV_GPU_UTIL", "GPU utilization (%).", lambda gpu: gpu.utilization_percent),
    _UTILIZATION.gauge("DEV_MEM_COPY_UTIL", "Memory utilization (%).", lambda gpu: gpu.memory_copy_percent),
    _ENGINES.reading("engine_percent.encoder").gauge(
        "DEV_ENC_UTIL", "Video encoder utilization (%).", entry("engine_percent", "encoder")
    ),
    _ENGINES.reading("engine_percent.decoder").gauge(
        "DEV_DEC_UTIL", "Video decoder utilization (%).", entry("engine_percent", "decoder")
    ),
)

MEMORY: tuple[Family[DcgmRow], ...] = (
    _MEMORY.gauge("DEV_FB_CAPACITY_BYTES", "Total frame buffer (bytes).", lambda memory: memory.total),
    _MEMORY.gauge("DEV_FB_FREE_BYTES", "Free frame buffer (bytes).", lambda memory: memory.free),
    _MEMORY.gauge("DEV_FB_USED_BYTES", "Used frame buffer (bytes).", lambda memory: memory.used),
    _MEMORY.gauge(
        "DEV_FB_RESERVED_BYTES",
        "Frame buffer reserved by the driver (bytes).",
        lambda memory: memory.reserved,
    ),
    _MEMORY.gauge(
        "DEV_FB_USED_PERCENT",
        "Used frame buffer as a ratio of 0 to 1: used / (total - reserved).",
        _used_share,
    ),
    _BAR1.gauge("DEV_BAR1_CAPACITY_BYTES", "Total BAR1 memory (bytes).", lambda bar1: bar1.total),
    _BAR1.gauge("DEV_BAR1_USED_BYTES", "Used BAR1 memory (bytes).", lambda bar1: bar1.used),
    _BAR1.gauge("DEV_BAR1_FREE_BYTES", "Free BAR1 memory (bytes).", lambda bar1: bar1.total - bar1.used),
)

MODES: tuple[Family[DcgmRow], ...] = (
    _MODES.reading("performance_state").gauge(
        "DEV_PSTATE",
        "Performance state (P-state): 0 is the maximum performance, 15 the minimum.",
        lambda gpu: gpu.performance_state,
    ),
    _MODES.reading("persistence").flag(
        "DEV_PERSISTENCE_MODE", "1 if persistence mode is enabled, else 0.", lambda gpu: gpu.persistence
    ),
    _MODES.flag("DEV_MIG_MODE", "1 if MIG mode is enabled, else 0.", lambda gpu: gpu.mig_enabled),
    _MODES.gauge(
        "DEV_COMPUTE_MODE",
        "Compute mode: 0 default, 1 exclusive thread, 2 prohibited, 3 exclusive process.",
        lambda gpu: _place(_COMPUTE_MODES, gpu.compute_mode),
    ),
    _VGPU.gauge(
        "DEV_VIRTUAL_MODE",
        "Virtualization mode: 0 none, 1 passthrough, 2 vGPU guest, 3 vGPU host, 4 vSGA host.",
        lambda gpu: _place(_VIRTUALIZATIONS, gpu.virtualization),
    ),
    _VGPU.of(lambda gpu: gpu.license).flag(
        "DEV_VGPU_LICENSE_STATUS",
        "1 if the vGPU in this guest is licensed, else 0.",
        lambda guest_license: guest_license.licensed,
    ),
)


_ACTIVE: tuple[tuple[str, Activity, str], ...] = (
    (
        "GR_ENGINE_ACTIVE",
        "graphics_engine",
        "Share of time in which the graphics or compute engine was active.",
    ),
    ("SM_ACTIVE", "sm", "Share of cycles in which an SM had at least one warp assigned."),
    ("SM_OCCUPANCY", "sm_occupancy", "Warps resident on the SMs, as a share of the maximum."),
    ("PIPE_TENSOR_ACTIVE", "tensor", "Share of cycles in which the tensor pipe was active."),
    ("DRAM_ACTIVE", "dram", "Share of cycles in which device memory sent or received data."),
    ("PIPE_FP64_ACTIVE", "fp64", "Share of cycles in which the FP64 pipe was active."),
    ("PIPE_FP32_ACTIVE", "fp32", "Share of cycles in which the FP32 pipe was active."),
    ("PIPE_FP16_ACTIVE", "fp16", "Share of cycles in which the FP16 pipe was active."),
    ("PIPE_TENSOR_IMMA_ACTIVE", "tensor_imma", "Share of cycles in which the IMMA tensor pipe was active."),
    ("PIPE_TENSOR_HMMA_ACTIVE", "tensor_hmma", "Share of cycles in which the HMMA tensor pipe was active."),
    ("PIPE_TENSOR_DFMA_ACTIVE", "tensor_dfma", "Share of cycles in which the DFMA tensor pipe was active."),
    ("PIPE_INT_ACTIVE", "integer", "Share of cycles in which the integer pipe was active."),
)
_RATES: tuple[tuple[str, Traffic, str], ...] = (
    ("PCIE_TX_BYTES", "pcie_transmit", "PCIe transmit rate including headers (bytes/s)."),
    ("PCIE_RX_BYTES", "pcie_receive", "PCIe receive rate including headers (bytes/s)."),
    ("NVLINK_TX_BYTES", "nvlink_transmit", "NVLink transmit rate (bytes/s)."),
    ("NVLINK_RX_BYTES", "nvlink_receive", "NVLink receive rate (bytes/s)."),
)
_CYCLES: tuple[tuple[str, Cycles, str], ...] = (
    ("SM_CYCLES_ELAPSED", "sm_elapsed", "SM cycles elapsed"),
    ("SM_CYCLES_ACTIVE", "sm_active", "SM cycles with at least one warp assigned"),
    ("MMA_CYCLES_ACTIVE", "mma", "Tensor pipe active cycles"),
    ("DMMA_CYCLES_ACTIVE", "dmma", "DMMA tensor pipe active cycles"),
    ("HMMA_CYCLES_ACTIVE", "hmma", "HMMA tensor pipe active cycles"),
    ("IMMA_CYCLES_ACTIVE", "imma", "IMMA tensor pipe active cycles"),
    ("DFMA_CYCLES_ACTIVE", "dfma", "DFMA tensor pipe active cycles"),
    ("INT_CYCLES_ACTIVE", "integer", "Integer pipe active cycles"),
    ("FP64_CYCLES_ACTIVE", "fp64", "FP64 pipe active cycles"),
    ("FP32_CYCLES_ACTIVE", "fp32", "FP32 pipe active cycles"),
    ("FP16_CYCLES_ACTIVE", "fp16", "FP16 pipe active cycles"),
)
_BYTES: tuple[tuple[str, Traffic, str], ...] = (
    ("PCIE_TX_BYTES", "pcie_transmit", "Bytes transmitted over PCIe"),
    ("PCIE_RX_BYTES", "pcie_receive", "Bytes received over PCIe"),
)

_ENTITY = DCGM_ROWS.grouped("profiling")
_PROFILE = READING.of(lambda gpu: gpu.profiling, "profiling")


PROFILING: tuple[Family[DcgmRow], ...] = (
    *(_ENTITY.gauge(f"PROF_{name}", text, entry("active", activity)) for name, activity, text in _ACTIVE),
    *(_PROFILE.gauge(f"PROF_{name}", text, entry("rates", traffic)) for name, traffic, text in _RATES),
    *(
        _PROFILE.counter(f"PROF_{name}_TOTAL", f"{text} since the node booted.", entry("cycles", kind))
        for name, kind, text in _CYCLES
    ),
    *(
        _PROFILE.counter(
            f"PROF_{name}_TOTAL", f"{text} since the node booted.", entry("bytes_total", traffic)
        )
        for name, traffic, text in _BYTES
    ),
)
