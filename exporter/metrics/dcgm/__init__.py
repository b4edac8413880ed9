"""A second table: the same readings under the names, labels and units of dcgm-exporter.

Dashboards and rules written for it keep working. Two differences are meant. A device is printed once, and
names a container only where exactly one holds it, so that sums over a shared GPU are right. And under MIG
the GPU stays, with what belongs to it alone, while its GPU instances tell what each of them has of its own.
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
"""Families under DCGM's names, for GPUs and for GPU instances of MIG, in dcgm-exporter's order."""

__all__ = ["DCGM", "LEGACY", "DcgmNames", "HostnameLabel", "entities", "legacy_entities"]
