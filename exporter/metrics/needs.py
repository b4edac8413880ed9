"""Readings that are skipped unless a chosen series needs them.

Listed are readings with driver calls of their own that nothing else uses: neither the join of devices to
pods, nor the conditions, nor the picture of the node. The rows that can be remapped are not: whether the
driver supports that call decides a condition.
"""

from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final

NEEDED_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "bar1": ("gpuslice_*_bar1_*", "DCGM_FI_DEV_BAR1_*"),
    "engine_percent.encoder": ("gpuslice_gpu_encoder_utilization_ratio", "*_ENC_UTIL", "dcgm_enc_*"),
    "engine_percent.decoder": ("gpuslice_gpu_decoder_utilization_ratio", "*_DEC_UTIL", "dcgm_dec_*"),
    "engine_percent.jpeg": ("gpuslice_gpu_jpeg_utilization_ratio",),
    "engine_percent.ofa": ("gpuslice_gpu_ofa_utilization_ratio",),
    "encoder_sessions": (
        *("gpuslice_gpu_encoder_sessions", "gpuslice_gpu_encoder_frames_per_second"),
        "gpuslice_gpu_encoder_latency_seconds",
    ),
    "clocks_megahertz.graphics": ("gpuslice_gpu_clock_hertz",),
    "clocks_megahertz.video": ("gpuslice_gpu_clock_hertz", "DCGM_FI_DEV_VIDEO_CLOCK"),
    "clocks_application_megahertz": ("gpuslice_gpu_clock_application_hertz", "DCGM_FI_DEV_APP_*"),
    "temperature_margin_celsius": ("gpuslice_gpu_temperature_limit_margin_*", "DCGM_FI_DEV_GPU_TEMP_LIMIT"),
    "power_limits_milliwatts.configured": (
        *("gpuslice_gpu_power_limit_setting_watts", "DCGM_FI_DEV_POWER_MGMT_LIMIT"),
    ),
    "fan_percent": ("gpuslice_gpu_fan_ratio", "DCGM_FI_DEV_FAN_SPEED"),
    "ecc.by_location": ("gpuslice_gpu_ecc_location_errors_total", "DCGM_FI_DEV_ECC_?BE_*"),
    "performance_state": ("gpuslice_gpu_performance_state", "DCGM_FI_DEV_PSTATE"),
    "persistence": ("gpuslice_gpu_persistence_mode", "DCGM_FI_DEV_PERSISTENCE_MODE"),
    "accounting": ("gpuslice_gpu_accounting_mode",),
    "protected_memory": ("gpuslice_gpu_protected_memory_*",),
    "nvlink.packet_errors": ("gpuslice_gpu_nvlink_packet_errors_total",),
    "nvlink.recoveries": ("gpuslice_gpu_nvlink_recoveries_total",),
    "nvlink.bit_error_ratios": ("gpuslice_gpu_nvlink_bit_error_ratio",),
    "c2c.enabled": ("gpuslice_gpu_c2c_enabled",),
    "c2c.speeds": ("gpuslice_gpu_c2c_bandwidth_bytes_per_second",),
    "c2c.errors": ("gpuslice_gpu_c2c_errors_total",),
    "display_active": ("gpuslice_gpu_display_active",),
}
"""By reading (dotted path of GpuReading), patterns of the names of the families that need it.

Of a family of which core has some samples only, core needs none of these.
"""
# It counts the unsupported calls of all readings.
_NEEDS_ALL = "gpuslice_nvml_unsupported"


def unneeded(names: Iterable[str]) -> frozenset[str]:
    """Return the readings that none of the families of these names needs, as keys of NEEDED_BY."""
    chosen = tuple(names)
    if _NEEDS_ALL in chosen:
        return frozenset()
    return frozenset(reading for reading in NEEDED_BY if not any(needs(name, (reading,)) for name in chosen))


def needs(name: str, readings: Collection[str]) -> bool:
    """Return whether the family of this name needs one of these readings."""
    return any(fnmatchcase(name, pattern) for reading in readings for pattern in NEEDED_BY[reading])
