"""DCGM's profiling fields (``DCGM_FI_PROF_*``): names, what their values can be, and blank values.

DCGM 4.6 renamed them; dcgm-exporter prints the names in its file of counters, by default the new ones from
4.9 on. Both may be on one page.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from exporter.model.bounds import SHARE, Bound, rate_bound
from exporter.model.readings import Activity, Cycles, Engine, ProfilePart, Traffic

PREFIX: Final = "DCGM_FI_PROF_"
# DCGM's blank values: no value, not found, not supported, not permitted. Exact values, because a rate in
# bytes may be higher than a blank of 32 bits.
BLANK_32, BLANK_64, BLANK_DOUBLE = 0x7FFFFFF0, 0x7FFFFFFFFFFFFFF0, 140737488355328
BLANKS: Final = frozenset(blank + kind for blank in (BLANK_32, BLANK_64) for kind in range(4))
BLANK_DOUBLES: Final = frozenset(BLANK_DOUBLE + kind for kind in range(4))
# Counts are printed as integers of 63 bits.
COUNTS: Final = Bound(0, BLANK_64 - 1)


class ProfilingField(NamedTuple):
    """A profiling field of DCGM, whatever type the page declares."""

    part: ProfilePart
    key: Activity | Engine | Traffic | Cycles  # in this part
    bound: Bound
    engine: int = 0  # number among the engines of a kind


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
        yield from ((name, ProfilingField("active", share, SHARE)) for name in names)
    for engine, (stem, count) in _ENGINES.items():
        for number in range(count):
            for name in (f"{stem}{number}_ACTIVE", f"{stem}_UTIL_{number}_RATIO"):
                yield name, ProfilingField("engines", engine, SHARE, number)
    for traffic, name in _RATES.items():
        yield name, ProfilingField("rates", traffic, rate_bound(traffic))
    yield from ((name, ProfilingField("cycles", cycles, COUNTS)) for cycles, name in _CYCLES.items())
    yield from ((name, ProfilingField("bytes_total", traffic, COUNTS)) for traffic, name in _BYTES.items())


# By name in capitals, old and new.
FIELDS: Final[Mapping[str, ProfilingField]] = {PREFIX + name: field for name, field in _names()}


def is_blank(profiling_field: ProfilingField, value: float) -> bool:
    """Return whether a value stands for none. Counts soon reach the blanks of doubles, but are integers."""
    is_count = profiling_field.bound is COUNTS and isinstance(value, int)
    return math.isnan(value) or value in BLANKS or (value in BLANK_DOUBLES and not is_count)


def believed(profiling_field: ProfilingField, value: float) -> float | None:
    """Return the value of a field; None for an impossible one."""
    bound = profiling_field.bound
    if not bound.has(value) or (bound is COUNTS and not isinstance(value, int)):
        return None
    return min(value, 1.0) if bound is SHARE else value
