"""The kubelet's answers as sorted records free of duplicates. Pure functions, bytes in.

The kubelet repeats a device once per NUMA node, in another order each time.
"""

from collections.abc import Iterable
from typing import Any

from exporter.model import Allocation, ContainerRef, OfferedDevice
from podresources.messages import AllocatableResourcesResponse, ListPodResourcesResponse


def allocations(answer: bytes) -> tuple[Allocation, ...]:
    """Fold an answer to List (v1 or v1alpha1); one of DECODE_ERRORS where it is none."""
    held: dict[tuple[str, str, str], set[tuple[str, str]]] = {}
    for pod in ListPodResourcesResponse.FromString(answer).pod_resources:
        for container in pod.containers:
            if devices := _distinct(container.devices):
                held.setdefault((pod.namespace, pod.name, container.name), set()).update(devices)
    # Plain tuples sort many times faster than records do.
    return tuple(
        Allocation(holder, resource, device_id)
        for names, devices in sorted(held.items())
        for holder in (ContainerRef(*names),)
        for resource, device_id in sorted(devices)
    )


def offered(answer: bytes) -> tuple[OfferedDevice, ...]:
    """Fold an answer to GetAllocatableResources; one of DECODE_ERRORS where it is none."""
    devices = AllocatableResourcesResponse.FromString(answer).devices
    return tuple(OfferedDevice(*device) for device in sorted(_distinct(devices)))


def _distinct(devices: Iterable[Any]) -> set[tuple[str, str]]:
    return {(entry.resource_name, device_id) for entry in devices for device_id in entry.device_ids}
