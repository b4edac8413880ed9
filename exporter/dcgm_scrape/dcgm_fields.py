"""DCGM's profiling fields (``DCGM_FI_PROF_*``): the reading of each, and its sentinels for unknown values.

DCGM 4.6 renamed the fields; dcgm-exporter prints the names in its file of counters, that of version 1 in
lower case.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from exporter.model.readings import Activity, Cycles, Engine, Traffic

PREFIX: Final = "DCGM_FI_PROF_"
# Shares may be slightly above 1: they are rounded, and their parts are sampled at different times.
HIGHEST_SHARE: Final = 1.01
# DCGM's blank values: no value, not found, not supported, not permitted. Exact values, because a rate in
# bytes may be higher than a blank of 32 bits.
BLANKS_32: Final = frozenset(range(0x7FFFFFF0, 0x7FFFFFF4))
BLANK_64: Final = 0x7FFFFFFFFFFFFFF0
BLANK_DOUBLE: Final = 140737488355328.0


@dataclass(frozen=True, slots=True)
class Share:
    """A share of time or of the peak."""

    key: Activity


@dataclass(frozen=True, slots=True)
class EngineShare:
    """A share of time of one of several engines of a kind."""

    key: Engine
    number: int


@dataclass(frozen=True, slots=True)
class Rate:
    """Bytes per second, whatever type the page declares."""

    key: Traffic


@dataclass(frozen=True, slots=True)
class CycleCount:
    """Cycles since the node booted."""

    key: Cycles


@dataclass(frozen=True, slots=True)
class ByteCount:
    """Bytes since the node booted."""

    key: Traffic


ProfilingField = Share | EngineShare | Rate | CycleCount | ByteCount

_SHARES: Final[Mapping[Activity, tuple[str, str]]] = {
    "graphics_engine": ("GR_ENGINE_ACTIVE", "GR_ENGINE_UTIL_RATIO"),
    "sm": ("SM_ACTIVE", "SM_UTIL_RATIO"),
    "sm_occupancy": ("SM_OCCUPANCY", "SM_OCCUPANCY_RATIO"),
    "tensor": ("PIPE_TENSOR_ACTIVE", "TENSOR_UTIL_RATIO"),
    "tensor_imma": ("PIPE_TENSOR_IMMA_ACTIVE", "IMMA_UTIL_RATIO"),
    "tensor_hmma": ("PIPE_TENSOR_HMMA_ACTIVE", "HMMA_UTIL_RATIO"),
    "tensor_dfma": ("PIPE_TENSOR_DFMA_ACTIVE", "DFMA_UTIL_RATIO"),
    "dram": ("DRAM_ACTIVE", "DRAM_UTIL_RATIO"),
    "fp64": ("PIPE_FP64_ACTIVE", "FP64_UTIL_RATIO"),
    "fp32": ("PIPE_FP32_ACTIVE", "FP32_UTIL_RATIO"),
    "fp16": ("PIPE_FP16_ACTIVE", "FP16_UTIL_RATIO"),
    "integer": ("PIPE_INT_ACTIVE", "INT_UTIL_RATIO"),
}
_ENGINES: Final[Mapping[Engine, tuple[str, int]]] = {
    "decoder": ("NVDEC", 8),
    "jpeg": ("NVJPG", 8),
    "ofa": ("NVOFA", 2),
}
_RATES: Final[Mapping[Traffic, str]] = {
    "pcie_transmit": "PCIE_TX_BYTES",
    "pcie_receive": "PCIE_RX_BYTES",
    "nvlink_transmit": "NVLINK_TX_BYTES",
    "nvlink_receive": "NVLINK_RX_BYTES",
}
_CYCLES: Final[Mapping[Cycles, str]] = {
    "sm_elapsed": "SM_CYCLES_ELAPSED_TOTAL",
    "sm_active": "SM_CYCLES_ACTIVE_TOTAL",
    "mma": "MMA_CYCLES_ACTIVE_TOTAL",
    "dmma": "DMMA_CYCLES_ACTIVE_TOTAL",
    "hmma": "HMMA_CYCLES_ACTIVE_TOTAL",
    "imma": "IMMA_CYCLES_ACTIVE_TOTAL",
    "dfma": "DFMA_CYCLES_ACTIVE_TOTAL",
    "integer": "INT_CYCLES_ACTIVE_TOTAL",
    "fp64": "FP64_CYCLES_ACTIVE_TOTAL",
    "fp32": "FP32_CYCLES_ACTIVE_TOTAL",
    "fp16": "FP16_CYCLES_ACTIVE_TOTAL",
}
_BYTES: Final[Mapping[Traffic, str]] = {
    "pcie_transmit": "PCIE_TX_BYTES_TOTAL",
    "pcie_receive": "PCIE_RX_BYTES_TOTAL",
}


def _names() -> Iterator[tuple[str, ProfilingField]]:
    """Yield every name of every field, without the prefix."""
    for share, names in _SHARES.items():
        for name in names:
            yield name, Share(share)
    for engine, (stem, count) in _ENGINES.items():
        for number in range(count):
            yield f"{stem}{number}_ACTIVE", EngineShare(engine, number)
            yield f"{stem}_UTIL_{number}_RATIO", EngineShare(engine, number)
    yield from ((name, Rate(traffic)) for traffic, name in _RATES.items())
    yield from ((name, CycleCount(cycles)) for cycles, name in _CYCLES.items())
    yield from ((name, ByteCount(traffic)) for traffic, name in _BYTES.items())


FIELDS: Final[Mapping[str, ProfilingField]] = {PREFIX + name: field for name, field in _names()}
"""By name in capitals, old and new."""


def plausible(field: ProfilingField, value: float) -> float | None:
    """Return the value of a field; None for a blank or implausible one."""
    match field:
        case Share() | EngineShare():
            return min(value, 1.0) if 0 <= value <= HIGHEST_SHARE else None
        case Rate():
            return value if 0 <= value < BLANK_DOUBLE and value not in BLANKS_32 else None
        case CycleCount() | ByteCount():
            # Counts soon exceed the blank of doubles, but are printed as integers.
            whole = isinstance(value, int) and 0 <= value < BLANK_64 and value not in BLANKS_32
            return value if whole else None
