"""Our series with the same meaning as a field of DCGM, and why some fields have none."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from exporter.metrics.dcgm.dialects import PREFIX, Steps


@dataclass(frozen=True, slots=True)
class OwnSeries:
    """A series of ours that has the values of a field of DCGM."""

    name: str
    # Our value is DCGM's times this.
    factor: Fraction
    # Whether our unit distinguishes the same values as the field's old unit.
    steps: Steps
    # Matchers that select the field among the series of that name.
    matchers: Mapping[str, str]


_SAME = Fraction(1)
_Rows = Mapping[str, str | tuple[str, Mapping[str, str]]]

_CLOCKS: _Rows = {
    f"DEV_{field}": (f"gpu_clock{kind}_hertz", {"clock": clock})
    for field, kind, clock in (
        ("SM_CLOCK", "", "sm"),
        ("MEM_CLOCK", "", "memory"),
        ("VIDEO_CLOCK", "", "video"),
        ("APP_SM_CLOCK", "_application", "sm"),
        ("APP_MEM_CLOCK", "_application", "memory"),
        ("MAX_SM_CLOCK", "_max", "sm"),
        ("MAX_MEM_CLOCK", "_max", "memory"),
        ("MAX_VIDEO_CLOCK", "_max", "video"),
    )
}
_RATIOS: _Rows = {
    "DEV_GPU_UTIL": "gpu_utilization_ratio",
    "DEV_MEM_COPY_UTIL": "gpu_memory_copy_utilization_ratio",
    "DEV_ENC_UTIL": "gpu_encoder_utilization_ratio",
    "DEV_DEC_UTIL": "gpu_decoder_utilization_ratio",
    "DEV_FAN_SPEED": "gpu_fan_ratio",
}
_BYTES: _Rows = {
    "DEV_FB_TOTAL": "gpu_memory_total_bytes",
    "DEV_FB_FREE": "gpu_memory_free_bytes",
    "DEV_FB_USED": "gpu_memory_used_bytes",
    "DEV_FB_RESERVED": "gpu_memory_reserved_bytes",
    "DEV_BAR1_TOTAL": "gpu_bar1_total_bytes",
    "DEV_BAR1_USED": "gpu_bar1_used_bytes",
}
_EQUAL: _Rows = {
    "DEV_MEMORY_TEMP": "gpu_memory_temperature_celsius",
    "DEV_GPU_TEMP": "gpu_temperature_celsius",
    "DEV_GPU_TEMP_LIMIT": "gpu_temperature_limit_margin_celsius",
    "DEV_MEM_MAX_OP_TEMP": ("gpu_temperature_threshold_celsius", {"threshold": "memory"}),
    "DEV_GPU_MAX_OP_TEMP": ("gpu_temperature_threshold_celsius", {"threshold": "gpu"}),
    "DEV_SLOWDOWN_TEMP": ("gpu_temperature_threshold_celsius", {"threshold": "slowdown"}),
    "DEV_SHUTDOWN_TEMP": ("gpu_temperature_threshold_celsius", {"threshold": "shutdown"}),
    "DEV_POWER_USAGE": "gpu_power_watts",
    "DEV_POWER_USAGE_INSTANT": ("gpu_power_part_watts", {"part": "instant"}),
    "DEV_POWER_MGMT_LIMIT": ("gpu_power_limit_setting_watts", {"limit": "configured"}),
    "DEV_POWER_MGMT_LIMIT_MIN": ("gpu_power_limit_setting_watts", {"limit": "min"}),
    "DEV_POWER_MGMT_LIMIT_MAX": ("gpu_power_limit_setting_watts", {"limit": "max"}),
    "DEV_POWER_MGMT_LIMIT_DEF": ("gpu_power_limit_setting_watts", {"limit": "default"}),
    "DEV_ENFORCED_POWER_LIMIT": "gpu_power_limit_watts",
    "DEV_PCIE_REPLAY_COUNTER": "gpu_pcie_replays_total",
    "DEV_PCIE_LINK_GEN": "gpu_pcie_link_generation",
    "DEV_PCIE_LINK_WIDTH": "gpu_pcie_link_width",
    "DEV_PCIE_MAX_LINK_GEN": "gpu_pcie_link_generation_max",
    "DEV_PCIE_MAX_LINK_WIDTH": "gpu_pcie_link_width_max",
    "DEV_ECC_CURRENT": "gpu_ecc_enabled",
    "DEV_ECC_PENDING": "gpu_ecc_enabled_pending",
    "DEV_RETIRED_SBE": ("gpu_retired_pages", {"cause": "single_bit"}),
    "DEV_RETIRED_DBE": ("gpu_retired_pages", {"cause": "double_bit"}),
    "DEV_RETIRED_PENDING": "gpu_retired_pages_pending",
    "DEV_UNCORRECTABLE_REMAPPED_ROWS": ("gpu_remapped_rows", {"severity": "uncorrected"}),
    "DEV_CORRECTABLE_REMAPPED_ROWS": ("gpu_remapped_rows", {"severity": "corrected"}),
    "DEV_ROW_REMAP_FAILURE": "gpu_row_remap_failure",
    "DEV_ROW_REMAP_PENDING": "gpu_row_remap_pending",
    "DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": ("gpu_nvlink_errors_total", {"error": "crc_flit"}),
    "DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": ("gpu_nvlink_errors_total", {"error": "crc_data"}),
    "DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": ("gpu_nvlink_errors_total", {"error": "replay"}),
    "DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": ("gpu_nvlink_errors_total", {"error": "recovery"}),
    "DEV_PSTATE": "gpu_performance_state",
    "DEV_PERSISTENCE_MODE": "gpu_persistence_mode",
    "DEV_VGPU_LICENSE_STATUS": "gpu_vgpu_licensed",
    "PROF_GR_ENGINE_ACTIVE": "gpu_graphics_engine_active_ratio",
    "PROF_SM_ACTIVE": "gpu_sm_active_ratio",
    "PROF_SM_OCCUPANCY": "gpu_sm_occupancy_ratio",
    "PROF_PIPE_TENSOR_ACTIVE": "gpu_tensor_active_ratio",
    "PROF_PIPE_TENSOR_IMMA_ACTIVE": "gpu_tensor_imma_active_ratio",
    "PROF_PIPE_TENSOR_HMMA_ACTIVE": "gpu_tensor_hmma_active_ratio",
    "PROF_PIPE_TENSOR_DFMA_ACTIVE": "gpu_tensor_dfma_active_ratio",
    "PROF_DRAM_ACTIVE": "gpu_dram_active_ratio",
    "PROF_PIPE_FP64_ACTIVE": "gpu_fp64_active_ratio",
    "PROF_PIPE_FP32_ACTIVE": "gpu_fp32_active_ratio",
    "PROF_PIPE_FP16_ACTIVE": "gpu_fp16_active_ratio",
    "PROF_PIPE_INT_ACTIVE": "gpu_integer_active_ratio",
}
_ECC: _Rows = {
    f"DEV_ECC_{short}_{when}_TOTAL": ("gpu_ecc_errors_total", {"severity": severity, "scope": scope})
    for when, scope in (("VOL", "volatile"), ("AGG", "aggregate"))
    for short, severity in (("SBE", "corrected"), ("DBE", "uncorrected"))
}
_VIOLATIONS: _Rows = {
    f"DEV_{field}_VIOLATION": ("gpu_violation_seconds_total", {"reason": reason})
    for field, reason in (
        ("POWER", "power"),
        ("THERMAL", "thermal"),
        ("SYNC_BOOST", "sync_boost"),
        ("BOARD_LIMIT", "board_limit"),
        ("LOW_UTIL", "low_utilization"),
        ("RELIABILITY", "reliability"),
    )
}

_RATES = "its series here are byte counters where the driver counts, and rates elsewhere"
_DIFFERENT: Mapping[str, str] = {
    "DEV_XID_ERRORS": "here the code is a label: see gpuslice_gpu_xid_code_errors_total",
    "DEV_CLOCK_THROTTLE_REASONS": "here each bit is a series: see gpuslice_gpu_clock_event_active",
    "DEV_CLOCKS_EVENT_REASONS": "here each bit is a series: see gpuslice_gpu_clock_event_active",
    "DEV_NVLINK_BANDWIDTH_TOTAL": _RATES,
    "PROF_PCIE_TX_BYTES": _RATES,
    "PROF_PCIE_RX_BYTES": _RATES,
    "PROF_NVLINK_TX_BYTES": _RATES,
    "PROF_NVLINK_RX_BYTES": _RATES,
    "DEV_FB_USED_PERCENT": "divide gpuslice_gpu_memory_used_bytes by the total without the reserved memory",
    "DEV_BAR1_FREE": "subtract gpuslice_gpu_bar1_used_bytes from gpuslice_gpu_bar1_total_bytes",
    "DEV_MIG_MODE": "here it is the label mig of gpuslice_gpu_info",
    "DEV_GET_GPU_RECOVERY_ACTION": "here each action is a series: see gpuslice_gpu_recovery_action",
}


def _own(rows: _Rows, factor: Fraction = _SAME, steps: Steps = "same") -> Iterator[tuple[str, OwnSeries]]:
    for field, row in rows.items():
        name, matchers = (row, {}) if isinstance(row, str) else row
        yield f"{PREFIX}{field}", OwnSeries(f"gpuslice_{name}", factor, steps, matchers)


OWN: Final[Mapping[str, OwnSeries]] = dict(
    (
        *_own(_CLOCKS, Fraction(10**6)),
        *_own(_RATIOS, Fraction(1, 100)),
        *_own(_BYTES, Fraction(2**20), "finer"),
        *_own(_EQUAL),
        *_own(_ECC),
        *_own(_VIOLATIONS, Fraction(1, 10**9), "coarser"),
        # The driver counts millijoules, and so do both.
        *_own({"DEV_TOTAL_ENERGY_CONSUMPTION": "gpu_energy_joules_total"}, Fraction(1, 1000)),
    )
)
"""Our series by the old name of the field."""

NO_EQUAL: Final[Mapping[str, str]] = {PREFIX + field: reason for field, reason in _DIFFERENT.items()}
"""Why a field has no equal series here, by its old name."""
