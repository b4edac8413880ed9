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

DcgmNames: TypeAlias = Literal["on", "off", "only", "legacy"]

DCGM: tuple[AnyFamily, ...] = (
    *(*CLOCKS, *HEAT, *POWER, *PCIE, *UTILIZATION, *XIDS, *THROTTLING, *MEMORY, *ECC, *REPAIRS, *NVLINK),
    *(*PROFILING, *MODES),
)
"""Families of GPUs and of GPU instances of MIG under DCGM's names, in dcgm-exporter's order."""

__all__ = ["DCGM", "LEGACY", "DcgmNames", "HostnameLabel", "entities", "legacy_entities"]
