"""Rows of profiling metrics: activity of a GPU or MIG device by part, and traffic over the GPU's links."""

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Any

from exporter.metrics.family import MIG_ROWS, READING, AnyFamily, Labelled, Rows, entry
from exporter.model import GpuReading, Profile
from exporter.model.readings import Activity, Cycles, Engine, Switches, Traffic

_ACTIVITIES: Mapping[Activity, str] = {
    "graphics_engine": "Share of time in which the graphics or compute engine of the {} was active",
    "sm": "Share of time in which an SM of the {} had at least one warp assigned, averaged over all SMs",
    "sm_occupancy": "Warps resident on the SMs of the {}, as a share of the maximum",
    "tensor": "Share of cycles in which a tensor core of the {} was active",
    "tensor_dfma": "Share of cycles in which the double-precision (DFMA) tensor pipe of the {} was active",
    "tensor_hmma": "Share of cycles in which the half-precision (HMMA) tensor pipe of the {} was active",
    "tensor_dmma": "Share of cycles in which the double-precision (DMMA) tensor pipe of the {} was active",
    "tensor_imma": "Share of cycles in which the integer (IMMA) tensor pipe of the {} was active",
    "dram": "Memory bandwidth of the {} in use, as a share of the peak",
    "fp64": "Share of cycles in which the FP64 pipe of the {} was active, tensor cores excluded",
    "fp32": "Share of cycles in which the FP32 pipe of the {} was active, tensor cores excluded",
    "fp16": "Share of cycles in which the FP16 pipe of the {} was active, tensor cores excluded",
    "integer": "Share of cycles in which the integer pipe of the {} was active",
}
# What each default set of other exporters has, besides occupancy.
_CORE_OF_MIG: tuple[Activity, ...] = ("graphics_engine", "sm", "tensor", "dram")
_CORE: tuple[Activity, ...] = (*_CORE_OF_MIG, "sm_occupancy")
# No panel shows these.
_FULL = ("tensor_dfma", "tensor_dmma", "tensor_imma")
_ENGINES: Mapping[Engine, str] = {
    "encoder": "video encoders",
    "decoder": "video decoders",
    "jpeg": "JPEG decoders",
    "ofa": "optical flow accelerators (OFA)",
}
_CYCLES: tuple[tuple[Cycles, str, str], ...] = (
    ("sm_elapsed", "sm_elapsed", "Elapsed cycles"),
    ("sm_active", "sm_active", "Cycles with at least one warp assigned"),
    ("mma", "tensor_active", "Cycles in which a tensor core was active"),
    ("dmma", "tensor_dmma_active", "Cycles in which the double-precision (DMMA) tensor pipe was active"),
    ("hmma", "tensor_hmma_active", "Cycles in which the half-precision (HMMA) tensor pipe was active"),
    ("imma", "tensor_imma_active", "Cycles in which the integer (IMMA) tensor pipe was active"),
    ("dfma", "tensor_dfma_active", "Cycles in which the double-precision (DFMA) tensor pipe was active"),
    ("integer", "integer_active", "Cycles in which the integer pipe was active"),
    ("fp64", "fp64_active", "Cycles in which the FP64 pipe was active"),
    ("fp32", "fp32_active", "Cycles in which the FP32 pipe was active"),
    ("fp16", "fp16_active", "Cycles in which the FP16 pipe was active"),
)
_SWITCHES: tuple[tuple[str, str, Switches], ...] = (
    (
        "context_switch_active_ratio",
        "Share of time in which a graphics engine of the GPU switched contexts, over the last poll interval.",
        "active",
    ),
    (
        "context_switch_cycles",
        "Average cycles of one context switch of a graphics engine of the GPU, over the last poll interval.",
        "cycles_per_request",
    ),
)
_TRAFFIC: tuple[tuple[Traffic, str, str, str], ...] = (
    ("pcie_transmit", "pcie", "Bytes sent by the GPU over PCIe", "PCIe transmit throughput"),
    ("pcie_receive", "pcie", "Bytes received by the GPU over PCIe", "PCIe receive throughput"),
    ("nvlink_transmit", "nvlink", "Bytes sent by the GPU over NVLink", "NVLink transmit throughput"),
    ("nvlink_receive", "nvlink", "Bytes received by the GPU over NVLink", "NVLink receive throughput"),
)


def _throughput(traffic: Traffic, gpu: GpuReading) -> float | None:
    """Return bytes per second if there is no byte counter, from which Prometheus can compute the rate."""
    return None if gpu.profiling is None or traffic in gpu.traffic_bytes else gpu.profiling.rates.get(traffic)


def _profiling(rows: Rows[Any, Profile], device: str, core: Collection[Activity]) -> Iterator[AnyFamily]:
    yield rows.standard.info(
        "profiling_info{source}",
        f"Source of the profiling metrics of the {device}: gpm (NVML) or dcgm (a dcgm-exporter on the node).",
        lambda profile: (profile.source,),
    )
    for activity, text in _ACTIVITIES.items():
        # Occupancy is not a share of time.
        name = "sm_occupancy_ratio" if activity == "sm_occupancy" else f"{activity}_active_ratio"
        beyond = rows.full if activity in _FULL else rows.standard
        yield (rows if activity in core else beyond).gauge(
            name, f"{text.format(device)}, over the last poll interval.", entry("active", activity)
        )
    for engine, engines in _ENGINES.items():
        yield rows.standard.gauge(
            f"{engine}_active_ratio",
            f"Average share of time in which the {engines} of the {device} were active, over the last poll "
            "interval.",
            entry("engines", engine),
        )


def _cycles(rows: Rows[Any, Profile]) -> Iterator[AnyFamily]:
    for cycles, name, text in _CYCLES:
        yield rows.full.counter(
            f"{name}_cycles_total",
            f"{text}, summed over all SMs of the GPU since the node booted.",
            entry("cycles", cycles),
        )


def _switches(rows: Rows[Any, Profile]) -> Iterator[AnyFamily]:
    for name, text, quantity in _SWITCHES:
        yield rows.full.reading("profiling.context_switches").gauge_by(
            f"{name}{{engine}}", text, partial(_by_engine, quantity)
        )


def _by_engine(quantity: Switches, profile: Profile) -> list[Labelled]:
    return [
        ((str(engine),), value)
        for (engine, kind), value in profile.context_switches.items()
        if kind == quantity
    ]


def _traffic() -> Iterator[AnyFamily]:
    for traffic, link, counted, throughput in _TRAFFIC:
        yield READING.grouped(link).counter(
            f"{traffic}_bytes_total",
            f"{counted}; absent if the driver's counter wraps.",
            entry("traffic_bytes", traffic),
        )
        yield READING.grouped("profiling").gauge(
            f"{traffic}_bytes_per_second",
            f"{throughput} of the GPU over the last poll interval; exported only without a byte counter.",
            partial(_throughput, traffic),
        )


_GPU = READING.of(lambda gpu: gpu.profiling, "profiling")
_MIG = MIG_ROWS.of(lambda row: row.reading.profiling, "profiling")

# Profiling metrics of GPUs, and the traffic over their links.
GPU_PROFILING: tuple[AnyFamily, ...] = (
    *_profiling(_GPU, "GPU", _CORE),
    *_cycles(_GPU),
    *_switches(_GPU),
    *_traffic(),
)

# Profiling metrics of MIG devices; shares are of the MIG device.
MIG_PROFILING: tuple[AnyFamily, ...] = tuple(_profiling(_MIG, "MIG device", _CORE_OF_MIG))
