"""The kubelet's answers as sorted records free of duplicates. Pure functions, bytes in.

The kubelet repeats a device once per NUMA node, in another order each time.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from exporter.model import Allocation, ClaimedDevice, ContainerRef, OfferedDevice
from podresources.messages import (
    ContainerDevices,
    DynamicResource,
    ListPodResourcesResponse,
    OfferedEntries,
)

_Names = tuple[str, str, str]
# Driver, pool, device, namespace and name of the claim, share: what tells two claimed devices apart.
_Claimed = tuple[str, str, str, str, str, str]


class Listed(NamedTuple):
    """What containers hold: by id, and by resource claims."""

    allocated: tuple[Allocation, ...]
    claims: tuple[ClaimedDevice, ...]


def listed(answer: bytes) -> Listed:
    """Fold an answer to List (v1 or v1alpha1); one of DECODE_ERRORS where it is none."""
    held: dict[_Names, set[tuple[str, str]]] = {}
    claimed: dict[_Names, dict[_Claimed, set[str]]] = {}
    for pod in ListPodResourcesResponse.FromString(answer).pod_resources:
        for container in pod.containers:
            names = (pod.namespace, pod.name, container.name)
            if devices := _distinct(container.devices):
                held.setdefault(names, set()).update(devices)
            if container.dynamic_resources:
                _claim(claimed.setdefault(names, {}), container.dynamic_resources)
    # Plain tuples sort many times faster than records do.
    allocated = tuple(
        Allocation(holder, resource, device_id)
        for names, devices in sorted(held.items())
        for holder in (ContainerRef(*names),)
        for resource, device_id in sorted(devices)
    )
    claims = tuple(
        ClaimedDevice(holder, *device, cdi=tuple(sorted(cdi)))
        for names, found in sorted(claimed.items())
        for holder in (ContainerRef(*names),)
        for device, cdi in sorted(found.items())
    )
    return Listed(allocated, claims)


def offered(answer: bytes) -> tuple[OfferedDevice, ...]:
    """Fold an answer to GetAllocatableResources; one of DECODE_ERRORS where it is none."""
    return _offered(frozenset(OfferedEntries.FromString(answer).devices))


@lru_cache(maxsize=1)
def _offered(entries: frozenset[bytes]) -> tuple[OfferedDevice, ...]:
    """Fold entries, which are those of the last time as long as nothing changes on the node."""
    devices = map(ContainerDevices.FromString, entries)
    return tuple(OfferedDevice(*device) for device in sorted(_distinct(devices)))


def _distinct(devices: Iterable[Any]) -> set[tuple[str, str]]:
    return {(entry.resource_name, device_id) for entry in devices for device_id in entry.device_ids}


def _claim(found: dict[_Claimed, set[str]], resources: Iterable[bytes]) -> None:
    """Gather the devices of claims; kubelets have been seen to list one thousands of times."""
    for encoded in set(resources):
        claim = DynamicResource.FromString(encoded)
        for each in claim.claim_resources:
            device = (
                each.driver_name,
                each.pool_name,
                each.device_name,
                claim.claim_namespace,
                claim.claim_name,
                each.share_id,
            )
            found.setdefault(device, set()).update(cdi.name for cdi in each.cdi_devices)
