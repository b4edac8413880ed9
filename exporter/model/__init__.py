"""The nouns of the exporter: frozen, slotted records without behaviour.

``hardware`` is what a device says, ``kubelet`` what the node's kubelet and processes say, ``holdings`` who
is entitled to what, ``snapshot`` what the join makes of all and every reader shows. Everywhere, ``None``
means *not known*: it is never printed, and never turned into a zero.
"""

from exporter.model.hardware import (
    DeviceProcess,
    DriverInfo,
    GpuIdentity,
    GpuReading,
    HardwareReading,
    Memory,
    MigReading,
)
from exporter.model.holdings import DeviceSharing, Holding, Holdings
from exporter.model.kubelet import (
    Allocation,
    Allocations,
    ContainerRef,
    OfferedDevice,
    PodIdentity,
    ProcessPlace,
    Workloads,
)
from exporter.model.snapshot import (
    CollectorHealth,
    ContainerRow,
    DeviceKey,
    GpuRow,
    MigRow,
    NodeRow,
    SliceCount,
    Snapshot,
    Totals,
)

__all__ = [
    "Allocation",
    "Allocations",
    "CollectorHealth",
    "ContainerRef",
    "ContainerRow",
    "DeviceKey",
    "DeviceProcess",
    "DeviceSharing",
    "DriverInfo",
    "GpuIdentity",
    "GpuReading",
    "GpuRow",
    "HardwareReading",
    "Holding",
    "Holdings",
    "Memory",
    "MigReading",
    "MigRow",
    "NodeRow",
    "OfferedDevice",
    "PodIdentity",
    "ProcessPlace",
    "SliceCount",
    "Snapshot",
    "Totals",
    "Workloads",
]
