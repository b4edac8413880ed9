"""The nouns of the exporter: frozen, slotted records without behaviour.

``hardware``: readings of devices, with their parts in ``readings``. ``kubelet``: allocations, pods and
processes. ``holdings``: entitlements of containers, and records that sharing systems keep on the node.
``snapshot``: the result of the join, which all pages and formats show. Everywhere, ``None`` means *unknown*:
it is never printed, and never turned into a zero.
"""

from exporter.model.hardware import (
    ConfidentialComputing,
    Cost,
    DeviceEvent,
    DeviceProcess,
    DriverInfo,
    EventCount,
    GpuIdentity,
    GpuReading,
    HardwareReading,
    MigReading,
    ProcessAccount,
    ProcessAccounts,
)
from exporter.model.holdings import (
    ContainerFile,
    DeviceKey,
    DeviceSharing,
    DeviceUse,
    Holding,
    Holdings,
    HostDevices,
    JobFiles,
    Meter,
    Problem,
    SliceCount,
    SystemFiles,
    Totals,
    only,
    total,
    unambiguous,
)
from exporter.model.kubelet import (
    Allocation,
    Allocations,
    ClaimedDevice,
    ContainerRef,
    ContainerSpec,
    HeldClaim,
    NamedRequest,
    NodeObject,
    OfferedDevice,
    PodDetails,
    PodIdentity,
    PodName,
    ProcessPlace,
    ResourceHealth,
    Workloads,
)
from exporter.model.readings import (
    Bar1,
    C2c,
    Ecc,
    EncoderSessions,
    Fabric,
    License,
    Memory,
    Number,
    Nvlink,
    PcieLink,
    PeerLink,
    Profile,
    Repairs,
    Topology,
    VgpuReading,
)
from exporter.model.snapshot import (
    ADVICE_LABEL,
    CollectorHealth,
    Condition,
    ContainerRow,
    EventRow,
    GpuRow,
    MigRow,
    NodeRow,
    PodRow,
    ProcessRow,
    Raised,
    Snapshot,
    VgpuRow,
)
