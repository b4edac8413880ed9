"""Fields of the device: clocks, temperature, power, PCIe, utilization, memory and modes."""

from typing import get_args

from exporter.metrics.dcgm.row import DCGM_ROWS, READING, DcgmRow, mebibytes
from exporter.metrics.family import Family, Number, scaled
from exporter.model import GpuReading, Memory
from exporter.model.hardware import ComputeMode, Virtualization
from exporter.model.readings import Traffic

# NVML's number of a mode is its place here.
_COMPUTE_MODES = get_args(ComputeMode)
_VIRTUALIZATIONS = get_args(Virtualization)
_KIBIBYTE = 1024

_CLOCKS = READING.grouped("clocks")
_THERMAL = READING.grouped("thermal")
_POWER = READING.grouped("power")
_PCIE = READING.grouped("pcie")
_PCIE_LINK = _PCIE.of(lambda gpu: gpu.pcie_link)
_PCIE_THROUGHPUT = READING.grouped("pcie_throughput")
_UTILIZATION = READING.grouped("utilization")
_ENGINES = READING.grouped("engines")
_MEMORY = DCGM_ROWS.of(lambda row: row.memory, "memory")
_BAR1 = DCGM_ROWS.of(lambda row: row.bar1, "bar1")
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


CLOCKS: tuple[Family[DcgmRow], ...] = (
    _CLOCKS.gauge("DEV_SM_CLOCK", "SM clock (MHz).", lambda gpu: gpu.clocks_megahertz.get("sm")),
    _CLOCKS.gauge("DEV_MEM_CLOCK", "Memory clock (MHz).", lambda gpu: gpu.clocks_megahertz.get("memory")),
    _CLOCKS.gauge(
        "DEV_VIDEO_CLOCK", "Video engine clock (MHz).", lambda gpu: gpu.clocks_megahertz.get("video")
    ),
    _CLOCKS.gauge(
        "DEV_APP_SM_CLOCK",
        "SM applications clock (MHz).",
        lambda gpu: gpu.clocks_application_megahertz.get("sm"),
    ),
    _CLOCKS.gauge(
        "DEV_APP_MEM_CLOCK",
        "Memory applications clock (MHz).",
        lambda gpu: gpu.clocks_application_megahertz.get("memory"),
    ),
    _CLOCKS.gauge(
        "DEV_MAX_SM_CLOCK", "Maximum SM clock (MHz).", lambda gpu: gpu.clocks_max_megahertz.get("sm")
    ),
    _CLOCKS.gauge(
        "DEV_MAX_MEM_CLOCK", "Maximum memory clock (MHz).", lambda gpu: gpu.clocks_max_megahertz.get("memory")
    ),
    _CLOCKS.gauge(
        "DEV_MAX_VIDEO_CLOCK",
        "Maximum video engine clock (MHz).",
        lambda gpu: gpu.clocks_max_megahertz.get("video"),
    ),
)

HEAT: tuple[Family[DcgmRow], ...] = (
    _THERMAL.gauge("DEV_MEMORY_TEMP", "Memory temperature (C).", lambda gpu: gpu.memory_temperature_celsius),
    _THERMAL.gauge("DEV_GPU_TEMP", "GPU temperature (C).", lambda gpu: gpu.temperature_celsius),
    _THERMAL.gauge(
        "DEV_GPU_TEMP_LIMIT",
        "Temperature margin to the nearest slowdown threshold (C).",
        lambda gpu: gpu.temperature_margin_celsius,
    ),
    _THERMAL.gauge(
        "DEV_MEM_MAX_OP_TEMP",
        "Maximum operating temperature of the memory (C).",
        lambda gpu: gpu.temperature_thresholds_celsius.get("memory"),
    ),
    _THERMAL.gauge(
        "DEV_GPU_MAX_OP_TEMP",
        "Maximum operating temperature of the GPU (C).",
        lambda gpu: gpu.temperature_thresholds_celsius.get("gpu"),
    ),
    _THERMAL.gauge(
        "DEV_SLOWDOWN_TEMP",
        "Slowdown temperature of the GPU (C).",
        lambda gpu: gpu.temperature_thresholds_celsius.get("slowdown"),
    ),
    _THERMAL.gauge(
        "DEV_SHUTDOWN_TEMP",
        "Shutdown temperature of the GPU (C).",
        lambda gpu: gpu.temperature_thresholds_celsius.get("shutdown"),
    ),
    _THERMAL.gauge("DEV_FAN_SPEED", "Fan speed as a share of the maximum (%).", lambda gpu: gpu.fan_percent),
)

POWER: tuple[Family[DcgmRow], ...] = (
    _POWER.gauge("DEV_POWER_USAGE", "Power draw (W).", lambda gpu: scaled(gpu.power_milliwatts, 1000)),
    _POWER.gauge(
        "DEV_POWER_USAGE_INSTANT",
        "Instantaneous power draw (W).",
        lambda gpu: scaled(gpu.power_parts_milliwatts.get("instant"), 1000),
    ),
    _POWER.counter(
        "DEV_TOTAL_ENERGY_CONSUMPTION",
        "Energy consumption since the driver was loaded (mJ); read every 15 s.",
        lambda gpu: gpu.energy_millijoules,
    ),
    _POWER.gauge(
        "DEV_POWER_MGMT_LIMIT",
        "Configured power limit (W).",
        lambda gpu: scaled(gpu.power_limits_milliwatts.get("configured"), 1000),
    ),
    _POWER.gauge(
        "DEV_POWER_MGMT_LIMIT_MIN",
        "Minimum configurable power limit (W).",
        lambda gpu: scaled(gpu.power_limits_milliwatts.get("min"), 1000),
    ),
    _POWER.gauge(
        "DEV_POWER_MGMT_LIMIT_MAX",
        "Maximum configurable power limit (W).",
        lambda gpu: scaled(gpu.power_limits_milliwatts.get("max"), 1000),
    ),
    _POWER.gauge(
        "DEV_POWER_MGMT_LIMIT_DEF",
        "Default power limit (W).",
        lambda gpu: scaled(gpu.power_limits_milliwatts.get("default"), 1000),
    ),
    _POWER.gauge(
        "DEV_ENFORCED_POWER_LIMIT",
        "Enforced power limit (W).",
        lambda gpu: scaled(gpu.power_limits_milliwatts.get("enforced"), 1000),
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
    _ENGINES.gauge(
        "DEV_ENC_UTIL", "Video encoder utilization (%).", lambda gpu: gpu.engine_percent.get("encoder")
    ),
    _ENGINES.gauge(
        "DEV_DEC_UTIL", "Video decoder utilization (%).", lambda gpu: gpu.engine_percent.get("decoder")
    ),
)

MEMORY: tuple[Family[DcgmRow], ...] = (
    _MEMORY.gauge("DEV_FB_TOTAL", "Total frame buffer (MiB).", lambda memory: mebibytes(memory.total)),
    _MEMORY.gauge("DEV_FB_FREE", "Free frame buffer (MiB).", lambda memory: mebibytes(memory.free)),
    _MEMORY.gauge("DEV_FB_USED", "Used frame buffer (MiB).", lambda memory: mebibytes(memory.used)),
    _MEMORY.gauge(
        "DEV_FB_RESERVED",
        "Frame buffer reserved by the driver (MiB).",
        lambda memory: mebibytes(memory.reserved),
    ),
    _MEMORY.gauge(
        "DEV_FB_USED_PERCENT",
        "Used frame buffer as a ratio of 0 to 1: used / (total - reserved).",
        _used_share,
    ),
    _BAR1.gauge("DEV_BAR1_TOTAL", "Total BAR1 memory (MiB).", lambda bar1: mebibytes(bar1.total)),
    _BAR1.gauge("DEV_BAR1_USED", "Used BAR1 memory (MiB).", lambda bar1: mebibytes(bar1.used)),
    _BAR1.gauge("DEV_BAR1_FREE", "Free BAR1 memory (MiB).", lambda bar1: mebibytes(bar1.total - bar1.used)),
)

MODES: tuple[Family[DcgmRow], ...] = (
    _MODES.gauge(
        "DEV_PSTATE",
        "Performance state (P-state): 0 is the maximum performance, 15 the minimum.",
        lambda gpu: gpu.performance_state,
    ),
    _MODES.flag(
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
