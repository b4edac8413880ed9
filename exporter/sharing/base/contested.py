"""Devices that one container should have alone, and another one holds too.

The kubelet may give one id to two containers after a restart, and two plugins know nothing of each other.
Which of the containers is entitled to the device is unknown, and nothing isolates them.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from exporter.model import ContainerRef, DeviceKey
from exporter.sharing.base import System
from exporter.sharing.base.inventory import parse_device_id
from exporter.sharing.base.resolve import Resolved
from exporter.sharing.base.view import View


def find_contested(
    view: View, resolved: Resolved, is_exclusive: Callable[[DeviceKey, System], bool]
) -> Mapping[DeviceKey, tuple[ContainerRef, ...]]:
    """Return the containers with a part of such a device, or with the same id; adds a problem for each.

    ``is_exclusive`` returns True if a system gives out a device to one container at most.
    """
    holders: dict[DeviceKey, set[ContainerRef]] = defaultdict(set)
    by_id: dict[tuple[DeviceKey, str, str], set[ContainerRef]] = defaultdict(set)
    alone: set[DeviceKey] = set()
    for system, device, grant in resolved.grants:
        holders[device.key].add(grant.holder)
        if grant.exclusive or is_exclusive(device.key, system):
            alone.add(device.key)
    for (key, resource, holder), ids in resolved.held.items():
        holders[key].add(holder)
        for device_id in ids:
            by_id[key, resource, device_id].add(holder)
        if is_exclusive(key, resolved.system_of[key, resource, holder]):
            alone.add(key)
    for key, holder in _of_whole_gpus(view, resolved):
        holders[key].add(holder)
        alone.add(key)
    contested = {key: holders[key] for key in alone if len(holders[key]) > 1}
    for (key, _, _), same in by_id.items():
        if len(same) > 1:
            contested[key] = contested.get(key, set()) | same
    for key, refs in contested.items():
        names = ", ".join(f"{ref.namespace}/{ref.pod}/{ref.container}" for ref in sorted(refs))
        about = f"the entitlements of {key.mig_uuid or key.uuid}"
        view.object_to("device", "contested", about, f"it is held at once by {names}")
    return {key: tuple(sorted(refs)) for key, refs in sorted(contested.items())}


def _of_whole_gpus(view: View, resolved: Resolved) -> Iterator[tuple[DeviceKey, ContainerRef]]:
    """Yield the MIG devices of each GPU that an id names as a whole, with the holder of the id."""
    for holder, resource, device_id in view.allocations.allocated:
        unresolved = device_id in resolved.unresolved.get(resource, ())
        named = parse_device_id(device_id) if unresolved else None
        if named is not None and not named.the_gpu:
            yield from ((key, holder) for key in view.inventory.parts_of(named))
