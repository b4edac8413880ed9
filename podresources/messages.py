"""gRPC method paths and protobuf messages of the kubelet's APIs, and the decoders of pod-resources responses.

The message classes are made at run time from the tables below. Generated code would be tied to a range of
protobuf runtimes; descriptors work with all of them. They have their own descriptor pool, because another
library in the process may have registered the packages ``v1`` and ``v1alpha1``. Only fields that the
exporter or the fake kubelet needs are declared: protobuf skips the rest.

Decoders return sorted records without duplicates: the kubelet repeats a device once per NUMA node, in varying
order.

Sources: kubernetes/kubelet ``pkg/apis/podresources/{v1,v1alpha1}/api.proto`` and
``pkg/apis/pods/v1alpha1/api.proto``, kubernetes/api ``core/v1/generated.proto``.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any, Final, Generic, NamedTuple, TypeVar

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from exporter.model import Allocation, ClaimedDevice, ContainerRef, OfferedDevice

LIST_V1: Final = "/v1.PodResourcesLister/List"
LIST_V1ALPHA1: Final = "/v1alpha1.PodResourcesLister/List"
ALLOCATABLE_V1: Final = "/v1.PodResourcesLister/GetAllocatableResources"
LIST_PODS: Final = "/v1alpha1.Pods/ListPods"

# protobuf's pure Python runtime raises the second one.
DECODE_ERRORS: Final = (DecodeError, UnicodeDecodeError)

_Field = tuple[str, int, str]  # name, number, type: a scalar or a message of the table; "*" = repeated
_Table = Mapping[str, tuple[_Field, ...]]

# v1alpha1 has the same messages with fewer fields under the same numbers, so that one table serves both.
_POD_RESOURCES: _Table = {
    "NUMANode": (("ID", 1, "int64"),),
    "TopologyInfo": (("nodes", 1, "NUMANode*"),),
    "ContainerDevices": (
        ("resource_name", 1, "string"),
        ("device_ids", 2, "string*"),
        ("topology", 3, "TopologyInfo"),
    ),
    "CDIDevice": (("name", 1, "string"),),
    "ClaimResource": (
        ("cdi_devices", 1, "CDIDevice*"),
        ("driver_name", 2, "string"),
        ("pool_name", 3, "string"),
        ("device_name", 4, "string"),
        ("share_id", 5, "string"),
    ),
    "DynamicResource": (
        ("claim_name", 2, "string"),
        ("claim_namespace", 3, "string"),
        ("claim_resources", 4, "ClaimResource*"),
    ),
    "ContainerResources": (
        ("name", 1, "string"),
        ("devices", 2, "ContainerDevices*"),
        # Kubelets may list one claim a hundred thousand times; equal entries are decoded once.
        ("dynamic_resources", 5, "bytes*"),
    ),
    "PodResources": (
        ("name", 1, "string"),
        ("namespace", 2, "string"),
        ("containers", 3, "ContainerResources*"),
    ),
    "ListPodResourcesResponse": (("pod_resources", 1, "PodResources*"),),
    "AllocatableResourcesResponse": (("devices", 1, "ContainerDevices*"),),
    # The same responses with undecoded entries, of which few change between two reads.
    "EncodedPods": (("pod_resources", 1, "bytes*"),),
    "OfferedEntries": (("devices", 1, "bytes*"),),
}
# A pod is sent as the bytes of a core/v1 Pod. That is proto2; declared as proto3, its strings are validated.
_PODS: _Table = {
    "ResourceHealth": (("resourceID", 1, "string"), ("health", 2, "string")),
    "ResourceStatus": (("name", 1, "string"), ("resources", 2, "ResourceHealth*")),
    "ContainerStatus": (
        ("name", 1, "string"),
        ("containerID", 8, "string"),
        ("allocatedResourcesStatus", 14, "ResourceStatus*"),
    ),
    "PodResourceClaimStatus": (("name", 1, "string"), ("resourceClaimName", 2, "string")),
    "ContainerExtendedResourceRequest": (("containerName", 1, "string"), ("requestName", 3, "string")),
    "PodExtendedResourceClaimStatus": (
        ("requestMappings", 1, "ContainerExtendedResourceRequest*"),
        ("resourceClaimName", 2, "string"),
    ),
    "PodStatus": (
        ("phase", 1, "string"),
        ("containerStatuses", 8, "ContainerStatus*"),
        ("initContainerStatuses", 10, "ContainerStatus*"),
        ("ephemeralContainerStatuses", 13, "ContainerStatus*"),
        ("resourceClaimStatuses", 15, "PodResourceClaimStatus*"),
        ("extendedResourceClaimStatus", 18, "PodExtendedResourceClaimStatus"),
    ),
    # A map is a list of entries of key and value on the wire.
    "StringEntry": (("key", 1, "string"), ("value", 2, "string")),
    "ObjectMeta": (
        ("name", 1, "string"),
        ("namespace", 3, "string"),
        ("uid", 5, "string"),
        ("labels", 11, "StringEntry*"),
        ("annotations", 12, "StringEntry*"),
    ),
    "Quantity": (("string", 1, "string"),),
    "QuantityEntry": (("key", 1, "string"), ("value", 2, "Quantity")),
    "ResourceClaim": (("name", 1, "string"), ("request", 2, "string")),
    "ResourceRequirements": (("limits", 1, "QuantityEntry*"), ("claims", 3, "ResourceClaim*")),
    # Without env, which may contain secrets.
    "Container": (("name", 1, "string"), ("resources", 8, "ResourceRequirements")),
    "PodResourceClaim": (("name", 1, "string"), ("resourceClaimName", 3, "string")),
    "PodSpec": (
        ("containers", 2, "Container*"),
        ("initContainers", 20, "Container*"),
        ("resourceClaims", 39, "PodResourceClaim*"),
    ),
    "Pod": (("metadata", 1, "ObjectMeta"), ("spec", 2, "PodSpec"), ("status", 3, "PodStatus")),
    "ListPodsResponse": (("pods", 1, "bytes*"),),
}
_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS = {"string": _FIELD.TYPE_STRING, "bytes": _FIELD.TYPE_BYTES, "int64": _FIELD.TYPE_INT64}
T = TypeVar("T")
_Print = tuple[int, int]
# The key of a claimed device: driver, pool, device, namespace and name of the claim, share.
_Claimed = tuple[str, str, str, str, str, str]


def _declare(message: descriptor_pb2.DescriptorProto, package: str, field: _Field) -> None:
    name, number, kind = field
    label = _FIELD.LABEL_REPEATED if kind.endswith("*") else _FIELD.LABEL_OPTIONAL
    declared = message.field.add(name=name, number=number, label=label)
    kind = kind.removesuffix("*")
    if kind in _SCALARS:
        declared.type = _SCALARS[kind]
    else:
        declared.type = _FIELD.TYPE_MESSAGE
        declared.type_name = f".{package}.{kind}"


def classes(package: str, table: _Table) -> dict[str, Any]:
    """Return a class for each message of a package; ``table`` has their fields by their names."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, fields in table.items():
        message = file.message_type.add(name=name)
        for field in fields:
            _declare(message, package, field)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in table
    }


_pod_resources = classes("podresources", _POD_RESOURCES)
_pods = classes("pods", _PODS)

ContainerDevices: Any = _pod_resources["ContainerDevices"]
DynamicResource: Any = _pod_resources["DynamicResource"]
ContainerResources: Any = _pod_resources["ContainerResources"]
PodResources: Any = _pod_resources["PodResources"]
ListPodResourcesResponse: Any = _pod_resources["ListPodResourcesResponse"]
AllocatableResourcesResponse: Any = _pod_resources["AllocatableResourcesResponse"]
EncodedPods: Any = _pod_resources["EncodedPods"]
OfferedEntries: Any = _pod_resources["OfferedEntries"]
ResourceStatus: Any = _pods["ResourceStatus"]
Pod: Any = _pods["Pod"]
ListPodsResponse: Any = _pods["ListPodsResponse"]


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
            if key not in now:
                now[key] = previous[key] if key in previous else self._make(payload)
            values.append(now[key])
        self._made = now
        return values


class Listed(NamedTuple):
    """The devices of all containers, by id and by resource claim."""

    allocated: tuple[Allocation, ...]
    claims: tuple[ClaimedDevice, ...]
    # All listed containers, with devices or without, and each pod with "" as container.
    containers: frozenset[ContainerRef]


class _PodDevices(NamedTuple):
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
        by_names: dict[tuple[str, str], list[tuple[_PodDevices, bytes]]] = {}
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


def _pod(payload: bytes) -> _PodDevices:
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
    return _PodDevices((pod.namespace, pod.name), allocated, claims, containers)


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
