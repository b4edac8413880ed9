"""The two dialects of dcgm-exporter: its names, units and labels before 4.9.0, and from then on.

From NVIDIA's header ``dcgm_fields.h`` of DCGM 4.6.1 (names that mean the same field, fields in base units),
and the counter files of dcgm-exporter (types). Of DCGM 4.7 only, by its list of field identifiers, are the
ratios of GPU, memory, encoder and decoder (1613 to 1616), the sizes of the frame buffer (1625 to 1628) and
NVLink (1648).

Not here, because they keep their names: fields of ECC errors, PCIe bytes, cycles, the vGPU license, and
``DCGM_EXP_…``; and the times for which clocks were limited (``DCGM_FI_DEV_…_VIOLATION``), whose fields in
seconds are new, next to the old ones.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal, TypeAlias

FieldType: TypeAlias = Literal["gauge", "counter"]
Steps: TypeAlias = Literal["same", "finer", "coarser"]

PREFIX: Final = "DCGM_FI_"
DEFAULTS: Final = "4.9.0"
"""The version of dcgm-exporter whose default counters have the new names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of DCGM under its old and its new name."""

    old: str
    new: str
    # The new value is the old one times this.
    factor: Fraction = Fraction(1)
    # Whether the new unit distinguishes the same values, more (the old one was rounded down), or fewer.
    steps: Steps = "same"
    old_type: FieldType = "gauge"
    new_type: FieldType = "gauge"
    # The first dcgm-exporter whose default counters have the new name; "" if only a collector file has it.
    since: str = ""


@dataclass(frozen=True, slots=True)
class Label:
    """A label of all series under its old and its new name."""

    old: str
    new: str
    # The first dcgm-exporter with the new name.
    since: str


LABELS: Final = (
    Label("Hostname", "hostname", "4.8.3"),
    Label("DCGM_FI_DRIVER_VERSION", "DCGM_FI_SYSTEM_DRIVER_VERSION", "4.9.0"),
)

_MEGAHERTZ = Fraction(10**6)
_MEBIBYTES = Fraction(2**20)
_PERCENT = Fraction(1, 100)
_MILLIJOULES = Fraction(1, 1000)
# The old number of NVLink is KiB/s divided by 1000, and not MB/s.
_NVLINK = Fraction(1024 * 1000)

# Fields of the default counters.
_CLOCKS = {"DEV_SM_CLOCK": "DEV_SM_CLOCK_HERTZ", "DEV_MEM_CLOCK": "DEV_MEMORY_CLOCK_HERTZ"}
_RATIOS = {
    "DEV_GPU_UTIL": "DEV_GPU_UTIL_RATIO",
    "DEV_MEM_COPY_UTIL": "DEV_MEMORY_UTIL_RATIO",
    "DEV_ENC_UTIL": "DEV_ENC_UTIL_RATIO",
    "DEV_DEC_UTIL": "DEV_DEC_UTIL_RATIO",
}
_BYTES = {
    "DEV_FB_FREE": "DEV_FB_FREE_BYTES",
    "DEV_FB_USED": "DEV_FB_USED_BYTES",
    "DEV_FB_RESERVED": "DEV_FB_RESERVED_BYTES",
    # Not among the old defaults, but the new name is among the new ones.
    "DEV_FB_TOTAL": "DEV_FB_CAPACITY_BYTES",
}
_GAUGES = {
    "DEV_MEMORY_TEMP": "DEV_MEMORY_TEMP_CELSIUS",
    "DEV_GPU_TEMP": "DEV_GPU_TEMP_CELSIUS",
    "DEV_POWER_USAGE": "DEV_BOARD_POWER_WATTS",
    "DEV_XID_ERRORS": "DEV_XID_ERROR",
    "DEV_ROW_REMAP_FAILURE": "DEV_ROW_REMAP_FAILED",
    "PROF_GR_ENGINE_ACTIVE": "PROF_GR_ENGINE_UTIL_RATIO",
    "PROF_PIPE_TENSOR_ACTIVE": "PROF_TENSOR_UTIL_RATIO",
    "PROF_DRAM_ACTIVE": "PROF_DRAM_UTIL_RATIO",
}
_COUNTERS = {
    "DEV_PCIE_REPLAY_COUNTER": "DEV_PCIE_REPLAY_TOTAL",
    "DEV_UNCORRECTABLE_REMAPPED_ROWS": "DEV_ROW_REMAP_UNCORRECTABLE_TOTAL",
    "DEV_CORRECTABLE_REMAPPED_ROWS": "DEV_ROW_REMAP_CORRECTABLE_TOTAL",
}

# Fields that a collector file must list.
_MORE_CLOCKS = {
    "DEV_VIDEO_CLOCK": "DEV_VIDEO_CLOCK_HERTZ",
    "DEV_APP_SM_CLOCK": "DEV_SM_APP_CLOCK_HERTZ",
    "DEV_APP_MEM_CLOCK": "DEV_MEMORY_APP_CLOCK_HERTZ",
    "DEV_MAX_SM_CLOCK": "DEV_SM_MAX_CLOCK_HERTZ",
    "DEV_MAX_MEM_CLOCK": "DEV_MEMORY_MAX_CLOCK_HERTZ",
    "DEV_MAX_VIDEO_CLOCK": "DEV_VIDEO_MAX_CLOCK_HERTZ",
}
_MORE_BYTES = {
    "DEV_BAR1_TOTAL": "DEV_BAR1_CAPACITY_BYTES",
    "DEV_BAR1_USED": "DEV_BAR1_USED_BYTES",
    "DEV_BAR1_FREE": "DEV_BAR1_FREE_BYTES",
}
_MORE_GAUGES = {
    "DEV_GPU_TEMP_LIMIT": "DEV_GPU_TEMP_MARGIN_CELSIUS",
    "DEV_MEM_MAX_OP_TEMP": "DEV_MEMORY_MAX_OP_TEMP_CELSIUS",
    "DEV_GPU_MAX_OP_TEMP": "DEV_GPU_MAX_OP_TEMP_CELSIUS",
    "DEV_SLOWDOWN_TEMP": "DEV_GPU_TEMP_SLOWDOWN_CELSIUS",
    "DEV_SHUTDOWN_TEMP": "DEV_GPU_TEMP_SHUTDOWN_CELSIUS",
    "DEV_POWER_USAGE_INSTANT": "DEV_BOARD_POWER_RAW_WATTS",
    "DEV_POWER_MGMT_LIMIT": "DEV_BOARD_POWER_LIMIT_REQUESTED_WATTS",
    "DEV_POWER_MGMT_LIMIT_MIN": "DEV_BOARD_POWER_LIMIT_MIN_WATTS",
    "DEV_POWER_MGMT_LIMIT_MAX": "DEV_BOARD_POWER_LIMIT_MAX_WATTS",
    "DEV_POWER_MGMT_LIMIT_DEF": "DEV_BOARD_POWER_LIMIT_DEFAULT_WATTS",
    "DEV_ENFORCED_POWER_LIMIT": "DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS",
    "DEV_CLOCK_THROTTLE_REASONS": "DEV_CLOCKS_EVENT_REASONS",
    "DEV_FB_USED_PERCENT": "DEV_FB_USED_RATIO",  # always was a ratio
    "DEV_ECC_CURRENT": "DEV_ECC_MODE",
    "DEV_BANKS_REMAP_ROWS_AVAIL_MAX": "DEV_BANK_REMAP_AVAIL_MAX",
    "DEV_BANKS_REMAP_ROWS_AVAIL_HIGH": "DEV_BANK_REMAP_AVAIL_HIGH",
    "DEV_BANKS_REMAP_ROWS_AVAIL_PARTIAL": "DEV_BANK_REMAP_AVAIL_PARTIAL",
    "DEV_BANKS_REMAP_ROWS_AVAIL_LOW": "DEV_BANK_REMAP_AVAIL_LOW",
    "DEV_BANKS_REMAP_ROWS_AVAIL_NONE": "DEV_BANK_REMAP_AVAIL_NONE",
    "DEV_GET_GPU_RECOVERY_ACTION": "DEV_GPU_RECOVERY_ACTION",
    "DEV_PSTATE": "DEV_GPU_PSTATE",
    "DEV_PERSISTENCE_MODE": "DEV_GPU_PERSISTENCE_MODE",
    "DEV_COMPUTE_MODE": "DEV_GPU_COMPUTE_MODE",
    "DEV_VIRTUAL_MODE": "DEV_GPU_VIRTUAL_MODE",
    "PROF_SM_ACTIVE": "PROF_SM_UTIL_RATIO",
    "PROF_SM_OCCUPANCY": "PROF_SM_OCCUPANCY_RATIO",
    "PROF_PIPE_FP64_ACTIVE": "PROF_FP64_UTIL_RATIO",
    "PROF_PIPE_FP32_ACTIVE": "PROF_FP32_UTIL_RATIO",
    "PROF_PIPE_FP16_ACTIVE": "PROF_FP16_UTIL_RATIO",
    "PROF_PIPE_INT_ACTIVE": "PROF_INT_UTIL_RATIO",
    "PROF_PIPE_TENSOR_IMMA_ACTIVE": "PROF_IMMA_UTIL_RATIO",
    "PROF_PIPE_TENSOR_HMMA_ACTIVE": "PROF_HMMA_UTIL_RATIO",
    "PROF_PIPE_TENSOR_DFMA_ACTIVE": "PROF_DFMA_UTIL_RATIO",
}
_MORE_COUNTERS = {
    "DEV_RETIRED_SBE": "DEV_PAGE_RETIRED_SBE_TOTAL",
    "DEV_RETIRED_DBE": "DEV_PAGE_RETIRED_DBE_TOTAL",
    "DEV_RETIRED_PENDING": "DEV_PAGE_RETIRED_PENDING",
    "DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": "DEV_NVLINK_CRC_FLIT_ERROR_TOTAL",
    "DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": "DEV_NVLINK_CRC_DATA_ERROR_TOTAL",
    "DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": "DEV_NVLINK_REPLAY_ERROR_TOTAL",
    "DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": "DEV_NVLINK_RECOVERY_ERROR_TOTAL",
}


def _fields(
    names: Mapping[str, str],
    factor: Fraction = Fraction(1),
    steps: Steps = "same",
    *,
    kind: FieldType = "gauge",
    since: str = "",
) -> Iterator[Field]:
    for old, new in names.items():
        yield Field(
            old=PREFIX + old,
            new=PREFIX + new,
            factor=factor,
            steps=steps,
            old_type=kind,
            new_type=kind,
            since=since,
        )


RENAMED: Final = (
    *_fields(_CLOCKS, _MEGAHERTZ, since=DEFAULTS),
    *_fields(_RATIOS, _PERCENT, since=DEFAULTS),
    *_fields(_BYTES, _MEBIBYTES, "finer", since=DEFAULTS),
    *_fields(_GAUGES, since=DEFAULTS),
    *_fields(_COUNTERS, kind="counter", since=DEFAULTS),
    Field(
        old=f"{PREFIX}DEV_TOTAL_ENERGY_CONSUMPTION",
        new=f"{PREFIX}DEV_GPU_ENERGY_JOULES_TOTAL",
        factor=_MILLIJOULES,
        steps="coarser",
        old_type="counter",
        new_type="counter",
        since=DEFAULTS,
    ),
    # A rate, of type counter in the old file.
    Field(
        old=f"{PREFIX}DEV_NVLINK_BANDWIDTH_TOTAL",
        new=f"{PREFIX}DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND",
        factor=_NVLINK,
        steps="finer",
        old_type="counter",
        since=DEFAULTS,
    ),
    *_fields(_MORE_CLOCKS, _MEGAHERTZ),
    *_fields(_MORE_BYTES, _MEBIBYTES, "finer"),
    *_fields({"DEV_FAN_SPEED": "DEV_FAN_SPEED_RATIO"}, _PERCENT),
    *_fields(_MORE_GAUGES),
    *_fields(_MORE_COUNTERS, kind="counter"),
)
"""Every renamed field that this exporter has; a field that is missing keeps its name."""
