"""Who is entitled to what: allocations resolved to the devices of this node.

Each sharing system has a file of its own and a place in ``_systems``.
"""

import re
from collections.abc import Iterable

from exporter.model import Allocations, DeviceSharing, GpuReading, Holdings
from exporter.sharing.amd import Amd
from exporter.sharing.inventory import Inventory
from exporter.sharing.nvidia import Nvidia
from exporter.sharing.resolve import resolve, slice_counts, system_of
from exporter.sharing.sysfs import HostDevices, host_devices
from exporter.sharing.system import System
from exporter.sharing.vgpu import Vgpu, vgpu_rows

__all__ = ["HostDevices", "host_devices", "resolve_holdings", "vgpu_rows"]


def _systems(patterns: Iterable[re.Pattern[str]]) -> tuple[System, ...]:
    """Name every system; where two know the same id, the first has it."""
    return (Nvidia(patterns), Amd())


def resolve_holdings(
    gpus: Iterable[GpuReading],
    allocations: Allocations | None,
    patterns: Iterable[re.Pattern[str]] = (),
    host: HostDevices | None = None,
) -> Holdings:
    """Return every holding of the node.

    ``allocations`` is None while the kubelet has never answered. ``patterns`` match whole names of
    resources that are NVIDIA's under another name. ``host`` tells where the mediated devices are that no
    driver lists yet.
    """
    inventory = Inventory(gpus)
    if allocations is None:
        return Holdings(known=False, devices={device.key: DeviceSharing() for device in inventory.devices})
    systems = (*_systems(patterns), Vgpu(inventory, allocations, host))
    resolved = resolve(inventory, allocations, systems)
    devices = {device.key: device for device in inventory.devices}
    system = {key: system_of(resolved, systems, device) for key, device in devices.items()}
    offered_known = allocations.offered is not None
    slices = slice_counts(resolved, offered_known)
    sharing = {
        key: system[key].sharing(device, slices.get(key, ()), key in resolved.replicated, offered_known)
        for key, device in devices.items()
    }
    holdings = [
        system[key].holding(devices[key], sharing[key], resource, holder, len(ids))
        for (key, resource, holder), ids in resolved.held.items()
    ]
    return Holdings(
        known=True,
        holdings=tuple(sorted(holdings, key=lambda held: (held.device, held.holder, held.resource))),
        devices=sharing,
        unresolved={resource: len(ids) for resource, ids in sorted(resolved.unresolved.items())},
        unresolved_holders=frozenset(resolved.unresolved_holders),
    )
