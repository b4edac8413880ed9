"""Devices and allocations for the tests of sharing, beside those of the join."""

from exporter.model import (
    Allocation,
    Allocations,
    ContainerRef,
    DeviceKey,
    GpuIdentity,
    GpuReading,
    Holding,
    Holdings,
    OfferedDevice,
)
from exporter.sharing import resolve_holdings
from tests.attribution.build import gpu

OTHER_UUID = "GPU-00000000-0000-0000-0000-0000000000ff"


def numbered(index, minor, uuid=OTHER_UUID, **more) -> GpuReading:
    """Return a whole GPU with an index of NVML and a minor of its own."""
    return gpu(identity=GpuIdentity(uuid=uuid, index=index, minor=minor, model="T4"), uuid=uuid, **more)


def allocations(
    allocated: list[Allocation] = (), offered: list[OfferedDevice] | None = (), version="v1"
) -> Allocations:
    """Return one answer of the kubelet."""
    return Allocations(
        allocated=tuple(sorted(allocated)),
        offered=None if offered is None else tuple(sorted(offered)),
        api_version=version,
        read_at=0.0,
    )


def resolve(gpus, allocated=(), offered=(), patterns=()) -> Holdings:
    """Resolve one node."""
    gpus = gpus if isinstance(gpus, list) else [gpus]
    return resolve_holdings(gpus, allocations(allocated, offered), patterns)


def where(holdings: Holdings) -> dict[str, list[DeviceKey]]:
    """Return the devices of each pod's holdings."""
    found: dict[str, list[DeviceKey]] = {}
    for holding in holdings.holdings:
        found.setdefault(holding.holder.pod, []).append(holding.device)
    return found


def only(holdings: Holdings) -> Holding:
    """Return the one holding that there is."""
    assert len(holdings.holdings) == 1, holdings
    return holdings.holdings[0]


def container(pod, name="main") -> ContainerRef:
    """Name a container."""
    return ContainerRef("ml", pod, name)
