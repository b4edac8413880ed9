"""Fields of the device: clocks, heat, power, PCIe, utilization, memory and modes."""

from typing import get_args

from exporter.metrics import Family, Number, scaled
from exporter.metrics.dcgm.row import DcgmRow, bar1, counter, flag, gauge, mebibytes, memory, pcie, reading
from exporter.model import GpuReading, Memory
from exporter.model.hardware import ComputeMode, Virtualization
from exporter.model.readings import Traffic

# The driver's numbers of these words are their places.
_COMPUTE_MODES = get_args(ComputeMode)
_VIRTUALIZATIONS = get_args(Virtualization)
_KIBIBYTE = 1024


def _throughput(gpu: GpuReading, direction: Traffic) -> int | None:
    rate = gpu.pcie_throughput.get(direction)
    return None if rate is None else rate // _KIBIBYTE


def _used_share(found: Memory) -> float | None:
    usable = found.total - (found.reserved or 0)
    return round(found.used / usable, 6) if usable > 0 else None


def _place(words: tuple[str, ...], word: str | None) -> Number | None:
    return None if word is None else words.index(word)


CLOCKS: tuple[Family[DcgmRow], ...] = (
    gauge("DEV_SM_CLOCK", "clocks", "SM clock (MHz).", reading(lambda r: r.clocks_megahertz.get("sm"))),
    gauge(
        "DEV_MEM_CLOCK", "clocks", "Memory clock (MHz).", reading(lambda r: r.clocks_megahertz.get("memory"))
    ),
    gauge(
        "DEV_VIDEO_CLOCK", "clocks", "Video clock (MHz).", reading(lambda r: r.clocks_megahertz.get("video"))
    ),
    gauge(
        "DEV_APP_SM_CLOCK",
        "clocks",
        "SM clock set for applications (MHz).",
        reading(lambda r: r.clocks_application_megahertz.get("sm")),
    ),
    gauge(
        "DEV_APP_MEM_CLOCK",
        "clocks",
        "Memory clock set for applications (MHz).",
        reading(lambda r: r.clocks_application_megahertz.get("memory")),
    ),
    gauge(
        "DEV_MAX_SM_CLOCK",
        "clocks",
        "Highest SM clock (MHz).",
        reading(lambda r: r.clocks_max_megahertz.get("sm")),
    ),
    gauge(
        "DEV_MAX_MEM_CLOCK",
        "clocks",
        "Highest memory clock (MHz).",
        reading(lambda r: r.clocks_max_megahertz.get("memory")),
    ),
    gauge(
        "DEV_MAX_VIDEO_CLOCK",
        "clocks",
        "Highest video clock (MHz).",
        reading(lambda r: r.clocks_max_megahertz.get("video")),
    ),
)

HEAT: tuple[Family[DcgmRow], ...] = (
    gauge(
        "DEV_MEMORY_TEMP",
        "thermal",
        "Temperature of the memory (C).",
        reading(lambda r: r.memory_temperature_celsius),
    ),
    gauge("DEV_GPU_TEMP", "thermal", "Temperature of the GPU (C).", reading(lambda r: r.temperature_celsius)),
    gauge(
        "DEV_GPU_TEMP_LIMIT",
        "thermal",
        "How far the GPU is from slowing down (C).",
        reading(lambda r: r.temperature_margin_celsius),
    ),
    gauge(
        "DEV_MEM_MAX_OP_TEMP",
        "thermal",
        "Highest temperature that the memory is meant to work at (C).",
        reading(lambda r: r.temperature_thresholds_celsius.get("memory")),
    ),
    gauge(
        "DEV_GPU_MAX_OP_TEMP",
        "thermal",
        "Highest temperature that the GPU is meant to work at (C).",
        reading(lambda r: r.temperature_thresholds_celsius.get("gpu")),
    ),
    gauge(
        "DEV_SLOWDOWN_TEMP",
        "thermal",
        "Temperature at which the GPU slows down (C).",
        reading(lambda r: r.temperature_thresholds_celsius.get("slowdown")),
    ),
    gauge(
        "DEV_SHUTDOWN_TEMP",
        "thermal",
        "Temperature at which the GPU shuts down (C).",
        reading(lambda r: r.temperature_thresholds_celsius.get("shutdown")),
    ),
    gauge("DEV_FAN_SPEED", "thermal", "Speed of the fan (%).", reading(lambda r: r.fan_percent)),
)

POWER: tuple[Family[DcgmRow], ...] = (
    gauge("DEV_POWER_USAGE", "power", "Power draw (W).", reading(lambda r: scaled(r.power_milliwatts, 1000))),
    gauge(
        "DEV_POWER_USAGE_INSTANT",
        "power",
        "Power draw at this moment (W).",
        reading(lambda r: scaled(r.power_parts_milliwatts.get("instant"), 1000)),
    ),
    counter(
        "DEV_TOTAL_ENERGY_CONSUMPTION",
        "power",
        "Energy drawn since the driver was loaded (mJ).",
        reading(lambda r: r.energy_millijoules),
    ),
    gauge(
        "DEV_POWER_MGMT_LIMIT",
        "power",
        "Power limit that is set (W).",
        reading(lambda r: scaled(r.power_limits_milliwatts.get("configured"), 1000)),
    ),
    gauge(
        "DEV_POWER_MGMT_LIMIT_MIN",
        "power",
        "Lowest power limit that can be set (W).",
        reading(lambda r: scaled(r.power_limits_milliwatts.get("min"), 1000)),
    ),
    gauge(
        "DEV_POWER_MGMT_LIMIT_MAX",
        "power",
        "Highest power limit that can be set (W).",
        reading(lambda r: scaled(r.power_limits_milliwatts.get("max"), 1000)),
    ),
    gauge(
        "DEV_POWER_MGMT_LIMIT_DEF",
        "power",
        "Power limit by default (W).",
        reading(lambda r: scaled(r.power_limits_milliwatts.get("default"), 1000)),
    ),
    gauge(
        "DEV_ENFORCED_POWER_LIMIT",
        "power",
        "Power limit in force (W).",
        reading(lambda r: scaled(r.power_limits_milliwatts.get("enforced"), 1000)),
    ),
)

PCIE: tuple[Family[DcgmRow], ...] = (
    gauge(
        "DEV_PCIE_TX_THROUGHPUT",
        "pcie_throughput",
        "Rate of transmission over PCIe (KB/s).",
        reading(lambda r: _throughput(r, "pcie_transmit")),
    ),
    gauge(
        "DEV_PCIE_RX_THROUGHPUT",
        "pcie_throughput",
        "Rate of reception over PCIe (KB/s).",
        reading(lambda r: _throughput(r, "pcie_receive")),
    ),
    counter("DEV_PCIE_REPLAY_COUNTER", "pcie", "Replays over PCIe.", reading(lambda r: r.pcie_replays)),
    gauge("DEV_PCIE_LINK_GEN", "pcie", "Generation of PCIe in use.", pcie(lambda link: link.generation)),
    gauge("DEV_PCIE_LINK_WIDTH", "pcie", "Lanes of PCIe in use.", pcie(lambda link: link.width)),
    gauge(
        "DEV_PCIE_MAX_LINK_GEN",
        "pcie",
        "Highest generation of PCIe that GPU and slot have in common.",
        pcie(lambda link: link.max_generation),
    ),
    gauge(
        "DEV_PCIE_MAX_LINK_WIDTH",
        "pcie",
        "Most lanes of PCIe that GPU and slot have in common.",
        pcie(lambda link: link.max_width),
    ),
)

UTILIZATION: tuple[Family[DcgmRow], ...] = (
    gauge(
        "DEV_GPU_UTIL", "utilization", "Utilization of the GPU (%).", reading(lambda r: r.utilization_percent)
    ),
    gauge(
        "DEV_MEM_COPY_UTIL",
        "utilization",
        "Utilization of the memory (%).",
        reading(lambda r: r.memory_copy_percent),
    ),
    gauge(
        "DEV_ENC_UTIL",
        "engines",
        "Utilization of the encoder (%).",
        reading(lambda r: r.engine_percent.get("encoder")),
    ),
    gauge(
        "DEV_DEC_UTIL",
        "engines",
        "Utilization of the decoder (%).",
        reading(lambda r: r.engine_percent.get("decoder")),
    ),
)

MEMORY: tuple[Family[DcgmRow], ...] = (
    gauge("DEV_FB_TOTAL", "memory", "Frame buffer (MiB).", memory(lambda m: mebibytes(m.total))),
    gauge("DEV_FB_FREE", "memory", "Frame buffer free (MiB).", memory(lambda m: mebibytes(m.free))),
    gauge("DEV_FB_USED", "memory", "Frame buffer used (MiB).", memory(lambda m: mebibytes(m.used))),
    gauge(
        "DEV_FB_RESERVED", "memory", "Frame buffer reserved (MiB).", memory(lambda m: mebibytes(m.reserved))
    ),
    gauge(
        "DEV_FB_USED_PERCENT",
        "memory",
        "used / (total - reserved), as a ratio of 0 to 1.",
        memory(_used_share),
    ),
    gauge("DEV_BAR1_TOTAL", "bar1", "BAR1 (MiB).", bar1(lambda b: mebibytes(b.total))),
    gauge("DEV_BAR1_USED", "bar1", "BAR1 used (MiB).", bar1(lambda b: mebibytes(b.used))),
    gauge("DEV_BAR1_FREE", "bar1", "BAR1 free (MiB).", bar1(lambda b: mebibytes(b.total - b.used))),
)

MODES: tuple[Family[DcgmRow], ...] = (
    gauge(
        "DEV_PSTATE",
        "modes",
        "Performance state, from 0 (fastest) to 15.",
        reading(lambda r: r.performance_state),
    ),
    gauge("DEV_PERSISTENCE_MODE", "modes", "1 if persistence is on.", reading(lambda r: flag(r.persistence))),
    gauge("DEV_MIG_MODE", "modes", "1 if MIG is on.", reading(lambda r: flag(r.mig_enabled))),
    gauge(
        "DEV_COMPUTE_MODE",
        "modes",
        "Compute mode: 0 default, 1 exclusive thread, 2 prohibited, 3 exclusive process.",
        reading(lambda r: _place(_COMPUTE_MODES, r.compute_mode)),
    ),
    gauge(
        "DEV_VIRTUAL_MODE",
        "vgpu",
        "Virtualization: 0 none, 1 passthrough, 2 vGPU, 3 host of vGPU, 4 host of vSGA.",
        reading(lambda r: _place(_VIRTUALIZATIONS, r.virtualization)),
    ),
    gauge(
        "DEV_VGPU_LICENSE_STATUS",
        "vgpu",
        "1 if the vGPU is licensed.",
        reading(lambda r: None if r.license is None else int(r.license.licensed)),
    ),
)
