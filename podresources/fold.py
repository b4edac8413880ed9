"""Decoders of the kubelet's pod-resources responses: bytes to sorted records without duplicates.

The kubelet repeats a device once per NUMA node, in varying order.
"""

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar

from exporter.model import Allocation, ClaimedDevice, ContainerRef, OfferedDevice
from podresources.messages import (
    ContainerDevices,
    DynamicResource,
    EncodedPods,
    OfferedEntries,
    PodResources,
)

T = TypeVar("T")
_Print = tuple[int, int]


class Unchanged(Generic[T]):
    """Makes a value of each payload, reusing the values of payloads that the previous read had too.

    Most pods do not change for hours, and each has some kilobytes: they are recognised by length and Python's
    keyed 64-bit hash, and not kept. Not thread-safe.
    """

    def __init__(self, make: Callable[[bytes], T]) -> None:
        self._make = make
        self._made: dict[_Print, T] = {}

    def of(self, payloads: Iterable[bytes]) -> list[T]:
        """Return the value of each payload in order; raises what ``make`` raises."""
        previous, now = self._made, dict[_Print, T]()
        values = []
        for payload in payloads:
            key = len(payload), hash(payload)
            value = now[key] if key in now else previous[key] if key in previous else self._make(payload)
            now[key] = value
            values.append(value)
        self._made = now
        return values


# The key of a claimed device: driver, pool, device, namespace and name of the claim, share.
_Claimed = tuple[str, str, str, str, str, str]


class Listed(NamedTuple):
    """The devices of all containers, by id and by resource claim."""

    allocated: tuple[Allocation, ...]
    claims: tuple[ClaimedDevice, ...]
    # All listed containers, with devices or without, and each pod with "" as container.
    containers: frozenset[ContainerRef]


class _Pod(NamedTuple):
    """The devices of one pod's containers, sorted, and all of its containers."""

    names: tuple[str, str]  # namespace and name
    allocated: tuple[Allocation, ...]
    claims: tuple[ClaimedDevice, ...]
    containers: tuple[ContainerRef, ...]


class Lists:
    """Decodes responses to List (v1 or v1alpha1); pods that did not change are not decoded again."""

    def __init__(self) -> None:
        self._pods = Unchanged(_pod)

    def listed(self, answer: bytes) -> Listed:
        """Return a decoded response; raises DECODE_ERRORS if it is malformed."""
        payloads = EncodedPods.FromString(answer).pod_resources
        by_names: dict[tuple[str, str], list[tuple[_Pod, bytes]]] = {}
        for pod, payload in zip(self._pods.of(payloads), payloads, strict=True):
            by_names.setdefault(pod.names, []).append((pod, payload))
        # Encoded messages that follow each other are one message.
        pods = [
            entries[0][0] if len(entries) == 1 else _pod(b"".join(payload for _, payload in entries))
            for _, entries in sorted(by_names.items())
        ]
        return Listed(
            tuple(chain.from_iterable(pod.allocated for pod in pods)),
            tuple(chain.from_iterable(pod.claims for pod in pods)),
            frozenset(chain.from_iterable(pod.containers for pod in pods)),
        )


def _pod(payload: bytes) -> _Pod:
    held: dict[str, set[tuple[str, str]]] = {}
    claimed: dict[str, dict[_Claimed, set[str]]] = {}
    pod = PodResources.FromString(payload)
    for container in pod.containers:
        if devices := _distinct(container.devices):
            held.setdefault(container.name, set()).update(devices)
        if container.dynamic_resources:
            _claim(claimed.setdefault(container.name, {}), container.dynamic_resources)
    # Plain tuples sort many times faster than records.
    allocated = tuple(
        Allocation(holder, resource, device_id)
        for name, devices in sorted(held.items())
        for holder in (ContainerRef(pod.namespace, pod.name, name),)
        for resource, device_id in sorted(devices)
    )
    claims = tuple(
        ClaimedDevice(holder, *device, cdi=tuple(sorted(cdi)))
        for name, devices in sorted(claimed.items())
        for holder in (ContainerRef(pod.namespace, pod.name, name),)
        for device, cdi in sorted(devices.items())
    )
    names = ("", *(container.name for container in pod.containers))
    containers = tuple(ContainerRef(pod.namespace, pod.name, name) for name in names)
    return _Pod((pod.namespace, pod.name), allocated, claims, containers)


def offered(answer: bytes) -> tuple[OfferedDevice, ...]:
    """Return a decoded response to GetAllocatableResources; raises DECODE_ERRORS if it is malformed."""
    devices = map(ContainerDevices.FromString, set(OfferedEntries.FromString(answer).devices))
    return tuple(OfferedDevice(*device) for device in sorted(_distinct(devices)))


def _distinct(devices: Iterable[Any]) -> set[tuple[str, str]]:
    return {(entry.resource_name, device_id) for entry in devices for device_id in entry.device_ids}


def _claim(devices: dict[_Claimed, set[str]], resources: Iterable[bytes]) -> None:
    """Add the devices of claims to ``devices``; kubelets may list one claim thousands of times."""
    for encoded in set(resources):
        claim = DynamicResource.FromString(encoded)
        for resource in claim.claim_resources:
            device = (
                resource.driver_name,
                resource.pool_name,
                resource.device_name,
                claim.claim_namespace,
                claim.claim_name,
                resource.share_id,
            )
            devices.setdefault(device, set()).update(cdi.name for cdi in resource.cdi_devices)
