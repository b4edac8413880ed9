"""Who is entitled to what: allocations resolved to the devices of this node."""

import re
from collections.abc import Iterable

from exporter.model import Allocations, DeviceSharing, GpuReading, Holdings
from exporter.sharing import nvidia
from exporter.sharing.inventory import Inventory

__all__ = ["resolve_holdings"]


def resolve_holdings(
    gpus: Iterable[GpuReading], allocations: Allocations | None, patterns: Iterable[re.Pattern[str]] = ()
) -> Holdings:
    """Return every holding of the node.

    ``allocations`` is None while the kubelet has never answered. ``patterns`` match whole names of
    resources that are NVIDIA's under another name.
    """
    inventory = Inventory(gpus)
    if allocations is None:
        return Holdings(known=False, devices={device.key: DeviceSharing() for device in inventory.devices})
    resolved = nvidia.resolve(inventory, allocations, nvidia.Resources(patterns))
    devices = {device.key: device for device in inventory.devices}
    offered_known = allocations.offered is not None
    slices = nvidia.slice_counts(resolved, offered_known)
    sharing = {
        key: nvidia.device_sharing(device, slices.get(key, ()), key in resolved.replicated, offered_known)
        for key, device in devices.items()
    }
    holdings = [
        nvidia.holding(devices[key], sharing[key], resource, holder, len(ids))
        for (key, resource, holder), ids in resolved.held.items()
    ]
    return Holdings(
        known=True,
        holdings=tuple(sorted(holdings, key=lambda held: (held.device, held.holder, held.resource))),
        devices=sharing,
        unresolved={resource: len(ids) for resource, ids in sorted(resolved.unresolved.items())},
        unresolved_holders=frozenset(resolved.unresolved_holders),
    )
