"""The second table: the same readings under the names, labels and units of dcgm-exporter.

Dashboards and rules written for dcgm-exporter keep working. Two differences are intended. A device has one
sample, with the labels of a container only if exactly one container holds it: sums over a shared GPU stay
right. And in MIG mode the GPU keeps the readings of the GPU as a whole, next to those of its GPU instances.
"""

from typing import Literal, TypeAlias

from exporter.metrics import AnyFamily
from exporter.metrics.dcgm.device import CLOCKS, HEAT, MEMORY, MODES, PCIE, POWER, UTILIZATION
from exporter.metrics.dcgm.entities import HostnameLabel, entities, legacy_entities
from exporter.metrics.dcgm.health import ECC, NVLINK, REPAIRS
from exporter.metrics.dcgm.legacy import LEGACY
from exporter.metrics.dcgm.profiling import PROFILING
from exporter.metrics.dcgm.xid_events import THROTTLING, XIDS

DcgmNames: TypeAlias = Literal["default", "all", "only", "off", "legacy"]

DCGM: tuple[AnyFamily, ...] = (
    *(*CLOCKS, *HEAT, *POWER, *PCIE, *UTILIZATION, *XIDS, *THROTTLING, *MEMORY, *ECC, *REPAIRS, *NVLINK),
    *(*PROFILING, *MODES),
)
"""Families of GPUs and of GPU instances of MIG under DCGM's names, in dcgm-exporter's order."""

_DEFAULT_FIELDS = (
    *("DEV_SM_CLOCK", "DEV_MEM_CLOCK", "DEV_MEMORY_TEMP", "DEV_GPU_TEMP", "DEV_POWER_USAGE"),
    *("DEV_TOTAL_ENERGY_CONSUMPTION", "DEV_PCIE_REPLAY_COUNTER", "DEV_GPU_UTIL", "DEV_MEM_COPY_UTIL"),
    *("DEV_ENC_UTIL", "DEV_DEC_UTIL", "DEV_XID_ERRORS", "DEV_FB_FREE", "DEV_FB_USED", "DEV_FB_RESERVED"),
    *("DEV_UNCORRECTABLE_REMAPPED_ROWS", "DEV_CORRECTABLE_REMAPPED_ROWS", "DEV_ROW_REMAP_FAILURE"),
    *("DEV_NVLINK_BANDWIDTH_TOTAL", "DEV_VGPU_LICENSE_STATUS", "PROF_GR_ENGINE_ACTIVE"),
    *("PROF_PIPE_TENSOR_ACTIVE", "PROF_DRAM_ACTIVE", "PROF_PCIE_TX_BYTES", "PROF_PCIE_RX_BYTES"),
)
DEFAULT: tuple[AnyFamily, ...] = tuple(
    family for family in DCGM if family.name.removeprefix("DCGM_FI_") in _DEFAULT_FIELDS
)
"""The families of dcgm-exporter's ``default-counters.csv``."""

__all__ = ["DCGM", "DEFAULT", "LEGACY", "DcgmNames", "HostnameLabel", "entities", "legacy_entities"]
