"""Resource claims, slices and device classes (DRA) of the API as the records of ``exporter.waiting``.

Fields with effect on the choice of devices that are not read are named, so that what depends on them is not
judged. Format: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/resource-claim-v1/
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from exporter.kubernetes.collection import mapping, objects, text
from exporter.kubernetes.scheduling import read_taints, read_terms, read_tolerations
from exporter.model.quantity import billionths
from exporter.waiting.affinity import NAME
from exporter.waiting.objects import (
    ClaimRequest,
    DeviceClass,
    DeviceName,
    NodeTerm,
    OfferedDraDevice,
    ResourceClaim,
    ResourceSlice,
    Version,
)

_FULL: Final = 256  # pods that a claim can be reserved for
# Fields that change nothing, and fields that are read.
_PLAIN_REQUEST: Final = frozenset({"deviceClassName", "selectors", "allocationMode", "count", "tolerations"})
_PLAIN_DEVICE: Final = frozenset({"name", "attributes", "capacity", "taints", "consumesCounters"})
_PLAIN_SLICE: Final = frozenset(
    {"driver", "pool", "nodeName", "nodeSelector", "allNodes", "devices", "sharedCounters"}
)


def read_claim(claim: Mapping[str, Any]) -> ResourceClaim | None:
    """Return a resource claim, None if it has no name."""
    metadata, devices = mapping(claim, "metadata"), mapping(claim, "spec", "devices")
    namespace, name = text(metadata, "namespace"), text(metadata, "name")
    if not namespace or not name:
        return None
    status = mapping(claim, "status")
    allocation = status.get("allocation")
    nodes = read_terms(allocation, "nodeSelector") if isinstance(allocation, dict) else None
    return ResourceClaim(
        namespace=namespace,
        name=name,
        requests=tuple(map(_request, objects(devices, "requests"))),
        allocated=tuple(_results(allocation)) if isinstance(allocation, dict) else None,
        node=_only_node(nodes),
        nodes=nodes,
        ending="deletionTimestamp" in metadata,
        users=_users(status),
        owner=_owning_pod(metadata),
        unread=tuple(_unread_of_claim(devices, status)),
    )


def read_slice(piece: Mapping[str, Any]) -> ResourceSlice | None:
    """Return a resource slice, None if it has no driver or pool."""
    spec = mapping(piece, "spec")
    driver, pool = text(spec, "driver"), mapping(spec, "pool")
    name, generation, count = text(pool, "name"), pool.get("generation"), pool.get("resourceSliceCount")
    if not (driver and name and isinstance(generation, int) and isinstance(count, int)):
        return None
    counters, unread = _counters(spec, "sharedCounters", "name")
    return ResourceSlice(
        driver=driver,
        pool=name,
        generation=generation,
        slices_of_pool=count,
        node=text(spec, "nodeName"),
        nodes=read_terms(spec, "nodeSelector"),
        devices=tuple(_device(each, driver, name) for each in objects(spec, "devices")),
        counters=counters,
        unread=(*_fields(spec, _PLAIN_SLICE), *unread),
    )


def read_class(device_class: Mapping[str, Any]) -> DeviceClass | None:
    """Return a device class, None if it has no name."""
    spec, name = mapping(device_class, "spec"), text(mapping(device_class, "metadata"), "name")
    if not name:
        return None
    return DeviceClass(
        name=name, selectors=_selectors(spec), extended_resource=text(spec, "extendedResourceName")
    )


def _request(request: Mapping[str, Any]) -> ClaimRequest:
    exactly = mapping(request, "exactly")
    name, count, mode = text(request, "name"), exactly.get("count"), text(exactly, "allocationMode")
    if not exactly:
        return ClaimRequest(name=name, device_class="", unread=("alternatives of a request",))
    unread = [*_fields(exactly, _PLAIN_REQUEST)]
    if mode not in {"", "All", "ExactCount"}:
        unread.append(f"allocation mode {mode}")
    return ClaimRequest(
        name=name,
        device_class=text(exactly, "deviceClassName"),
        count=None if mode == "All" else (count if isinstance(count, int) else 1),
        selectors=_selectors(exactly),
        tolerations=read_tolerations(exactly),
        unread=tuple(unread),
    )


def _selectors(parent: Mapping[str, Any]) -> tuple[str, ...]:
    """Return CEL expressions; a selector of another kind is an empty text, which is not an expression."""
    return tuple(text(mapping(each, "cel"), "expression") for each in objects(parent, "selectors"))


def _results(allocation: Mapping[str, Any]) -> Iterator[DeviceName]:
    for each in objects(mapping(allocation, "devices"), "results"):
        if each.get("adminAccess") is not True:
            yield DeviceName(text(each, "driver"), text(each, "pool"), text(each, "device"))


def _only_node(nodes: tuple[NodeTerm, ...] | None) -> str:
    if nodes is None or len(nodes) != 1 or nodes[0].labels or len(nodes[0].fields) != 1:
        return ""
    (field,) = nodes[0].fields
    named = field.key == NAME and field.operator == "In" and len(field.values) == 1
    return field.values[0] if named else ""


def _users(status: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the names of the pods that a claim is reserved for, None if it is for others too."""
    users = objects(status, "reservedFor")
    if any(text(each, "resource") != "pods" or text(each, "apiGroup") for each in users):
        return None
    return frozenset(text(each, "name") for each in users)


def _owning_pod(metadata: Mapping[str, Any]) -> str:
    for each in objects(metadata, "ownerReferences"):
        if each.get("controller") is True and text(each, "kind") == "Pod":
            return text(each, "name")
    return ""


def _unread_of_claim(devices: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[str]:
    if objects(devices, "constraints"):
        yield "constraints of a claim"
    results = objects(mapping(status, "allocation", "devices"), "results")
    if any(each.get("bindingConditions") for each in results):
        yield "binding conditions of devices"
    if len(objects(status, "reservedFor")) >= _FULL:
        yield f"a claim of {_FULL} pods"


def _device(device: Mapping[str, Any], driver: str, pool: str) -> OfferedDraDevice:
    attributes, capacity = mapping(device, "attributes"), mapping(device, "capacity")
    values = {_qualified(name, driver): _value(each) for name, each in attributes.items()}
    sizes = {_qualified(name, driver): _size(each) for name, each in capacity.items()}
    counters, unread_counters = _counters(device, "consumesCounters", "counterSet")
    unread = [*_fields(device, _PLAIN_DEVICE), *unread_counters]
    unread += [f"{name} of a device" for name, each in (values | sizes).items() if each is None]
    return OfferedDraDevice(
        name=DeviceName(driver, pool, text(device, "name")),
        attributes={name: each for name, each in values.items() if each is not None},
        capacity={name: each for name, each in sizes.items() if each is not None},
        counters=counters,
        taints=read_taints(device),
        shared=device.get("allowMultipleAllocations") is True,
        unread=tuple(unread),
    )


def _qualified(name: str, driver: str) -> str:
    return name if "/" in name else f"{driver}/{name}"


def _value(attribute: Any) -> str | int | bool | None:
    """Return the value of an attribute, None for one of a kind that is not known here."""
    match attribute:
        case {"string": str(value)} | {"int": int(value)} | {"bool": bool(value)}:
            return value
        case {"version": str(value)}:
            return Version(value)
    return None


def _counters(parent: Mapping[str, Any], name: str, key: str) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return sizes of counters by "set/counter", and what could not be read, as words."""
    sizes = {
        f"{text(each, key)}/{counter}": _size(value)
        for each in objects(parent, name)
        for counter, value in mapping(each, "counters").items()
    }
    known = {counter: size for counter, size in sizes.items() if size is not None}
    return known, () if len(known) == len(sizes) else (f"{name} of devices",)


def _size(capacity: Any) -> int | None:
    try:
        return billionths(text(capacity, "value")) if isinstance(capacity, dict) else None
    except ValueError:
        return None


def _fields(parent: Mapping[str, Any], plain: frozenset[str]) -> Iterator[str]:
    """Yield what an object has besides plain fields, as words; what is empty or false has no effect."""
    for name, value in parent.items():
        if name not in plain and value:
            yield name
