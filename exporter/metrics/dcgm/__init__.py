"""The second table: the same readings under the names, labels and units of dcgm-exporter.

Dashboards and rules written for dcgm-exporter keep working. Two differences are intended. A device has one
sample, with the labels of a container only if exactly one container holds it: sums over a shared GPU stay
right. And in MIG mode the GPU keeps the readings of the GPU as a whole, next to those of its GPU instances.

dcgm-exporter 4.9 renamed fields: the families of each version are here. The lower-case names of dcgm-exporter
1.x, in its units, are here too.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, TypeAlias

from exporter.metrics import AnyFamily, Family
from exporter.metrics.dcgm.both_names import both_names
from exporter.metrics.dcgm.device import CLOCKS, HEAT, MEMORY, MODES, PCIE, POWER, PROFILING, UTILIZATION
from exporter.metrics.dcgm.dialects import PREFIX, RENAMED
from exporter.metrics.dcgm.entities import DcgmRow, DcgmVersion, HostnameLabel, levels
from exporter.metrics.dcgm.health import ECC, NVLINK, REPAIRS, THROTTLING, XIDS
from exporter.metrics.family import Rows, whole

DcgmNames: TypeAlias = Literal["default", "all", "only", "off", "legacy"]

# Families of GPUs and of GPU instances of MIG, in dcgm-exporter's order.
_FIELDS: tuple[AnyFamily, ...] = (
    *(*CLOCKS, *HEAT, *POWER, *PCIE, *UTILIZATION, *XIDS, *THROTTLING, *MEMORY, *ECC, *REPAIRS, *NVLINK),
    *(*PROFILING, *MODES),
)
_NAMED = tuple(both_names(_FIELDS))
# The same under DCGM's names, by version of dcgm-exporter.
DCGM: Mapping[DcgmVersion, tuple[AnyFamily, ...]] = {
    "4.8": tuple(named.old for named in _NAMED),
    "4.9": tuple(named.new for named in _NAMED if named.new is not None),
    "both": tuple(dict.fromkeys(family for named in _NAMED for family in named if family is not None)),
}

_DEFAULT_FIELDS = (
    *("DEV_SM_CLOCK", "DEV_MEM_CLOCK", "DEV_MEMORY_TEMP", "DEV_GPU_TEMP", "DEV_POWER_USAGE"),
    *("DEV_TOTAL_ENERGY_CONSUMPTION", "DEV_PCIE_REPLAY_COUNTER", "DEV_GPU_UTIL", "DEV_MEM_COPY_UTIL"),
    *("DEV_ENC_UTIL", "DEV_DEC_UTIL", "DEV_XID_ERRORS", "DEV_FB_FREE", "DEV_FB_USED", "DEV_FB_RESERVED"),
    *("DEV_UNCORRECTABLE_REMAPPED_ROWS", "DEV_CORRECTABLE_REMAPPED_ROWS", "DEV_ROW_REMAP_FAILURE"),
    *("DEV_NVLINK_BANDWIDTH_TOTAL", "DEV_VGPU_LICENSE_STATUS", "PROF_GR_ENGINE_ACTIVE"),
    *("PROF_PIPE_TENSOR_ACTIVE", "PROF_DRAM_ACTIVE", "PROF_PCIE_TX_BYTES", "PROF_PCIE_RX_BYTES"),
)
_DEFAULT_NAMES = {PREFIX + field for field in _DEFAULT_FIELDS} | {
    field.new for field in RENAMED if field.since
}
# The families of dcgm-exporter's ``default-counters.csv``, by its version.
DEFAULT: Mapping[DcgmVersion, tuple[AnyFamily, ...]] = {
    version: tuple(family for family in families if family.name in _DEFAULT_NAMES)
    for version, families in DCGM.items()
}

_VERSION_1: Mapping[str, str] = {
    "sm_clock": "DEV_SM_CLOCK",
    "memory_clock": "DEV_MEM_CLOCK",
    "memory_temp": "DEV_MEMORY_TEMP",
    "gpu_temp": "DEV_GPU_TEMP",
    "power_usage": "DEV_POWER_USAGE",
    "total_energy_consumption": "DEV_TOTAL_ENERGY_CONSUMPTION",
    "pcie_tx_throughput": "DEV_PCIE_TX_THROUGHPUT",
    "pcie_rx_throughput": "DEV_PCIE_RX_THROUGHPUT",
    "pcie_replay_counter": "DEV_PCIE_REPLAY_COUNTER",
    "gpu_utilization": "DEV_GPU_UTIL",
    "mem_copy_utilization": "DEV_MEM_COPY_UTIL",
    "enc_utilization": "DEV_ENC_UTIL",
    "dec_utilization": "DEV_DEC_UTIL",
    "fb_total": "DEV_FB_TOTAL",
    "fb_free": "DEV_FB_FREE",
    "fb_used": "DEV_FB_USED",
    "ecc_sbe_volatile_total": "DEV_ECC_SBE_VOL_TOTAL",
    "ecc_dbe_volatile_total": "DEV_ECC_DBE_VOL_TOTAL",
    "ecc_sbe_aggregate_total": "DEV_ECC_SBE_AGG_TOTAL",
    "ecc_dbe_aggregate_total": "DEV_ECC_DBE_AGG_TOTAL",
    "retired_pages_sbe": "DEV_RETIRED_SBE",
    "retired_pages_dbe": "DEV_RETIRED_DBE",
    "retired_pages_pending": "DEV_RETIRED_PENDING",
    "nvlink_flit_crc_error_count_total": "DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
    "nvlink_data_crc_error_count_total": "DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
    "nvlink_replay_error_count_total": "DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
    "nvlink_recovery_error_count_total": "DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
    "nvlink_bandwidth_total": "DEV_NVLINK_BANDWIDTH_TOTAL",
    "fi_prof_gr_engine_active": "PROF_GR_ENGINE_ACTIVE",
    "fi_prof_sm_active": "PROF_SM_ACTIVE",
    "fi_prof_sm_occupancy": "PROF_SM_OCCUPANCY",
    "fi_prof_pipe_tensor_active": "PROF_PIPE_TENSOR_ACTIVE",
    "fi_prof_dram_active": "PROF_DRAM_ACTIVE",
    "fi_prof_pcie_tx_bytes": "PROF_PCIE_TX_BYTES",
    "fi_prof_pcie_rx_bytes": "PROF_PCIE_RX_BYTES",
}
_VIOLATIONS: Mapping[str, str] = {
    "power_violation": "DEV_POWER_VIOLATION",
    "thermal_violation": "DEV_THERMAL_VIOLATION",
    "sync_boost_violation": "DEV_SYNC_BOOST_VIOLATION",
    "board_limit_violation": "DEV_BOARD_LIMIT_VIOLATION",
    "low_util_violation": "DEV_LOW_UTIL_VIOLATION",
    "reliability_violation": "DEV_RELIABILITY_VIOLATION",
}
_OLD_FIELDS = {family.name: family for family in DCGM["4.8"] if isinstance(family, Family)}


def _renamed(name: str, field: str) -> Family[DcgmRow]:
    return replace(_OLD_FIELDS[PREFIX + field], name=f"dcgm_{name}", level="dcgm_legacy")


def _violation(name: str, field: str) -> Family[DcgmRow]:
    """Return a family of times in microseconds, the unit of version 1."""
    family = _renamed(name, field)

    def value(row: DcgmRow) -> int | None:
        nanoseconds = family.value(row)
        return None if nanoseconds is None else int(nanoseconds // 1000)

    return replace(family, help=family.help.replace("(ns)", "(us)"), value=value)


_ROWS: Rows[DcgmRow, DcgmRow] = Rows("dcgm_", "dcgm_legacy", whole)

# Families of GPUs under the names of version 1.
LEGACY: tuple[AnyFamily, ...] = (
    *(_renamed(name, field) for name, field in _VERSION_1.items()),
    *(_violation(name, field) for name, field in _VIOLATIONS.items()),
    _ROWS.grouped("events").gauge(
        "xid_errors", "Code of the last XID error; 0 before the first error.", lambda row: row.xids.last
    ),
    _ROWS.of(lambda row: row.gpu, "core").info(
        "gpu_info{gpu_type}", "Model of the GPU.", lambda gpu: (gpu.identity.model,)
    ),
)

__all__ = ["DCGM", "DEFAULT", "LEGACY", "DcgmNames", "DcgmVersion", "HostnameLabel", "levels"]
