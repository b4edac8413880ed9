"""Resource claims, slices and classes of the API become records; what has effect and is not read is named."""

from typing import Any

import pytest

from exporter.kubernetes.device_claims import read_claim, read_class, read_slice
from exporter.model.quantity import billionths
from exporter.waiting.objects import (
    ClaimRequest,
    DeviceClass,
    DeviceName,
    NodeTerm,
    OfferedDraDevice,
    Requirement,
    ResourceClaim,
    ResourceSlice,
    Taint,
    Toleration,
    Version,
)

Json = dict[str, Any]
METADATA = {"namespace": "ml", "name": "gpu"}


def claim(devices: Json, status: Json | None = None) -> ResourceClaim:
    found = read_claim({"metadata": METADATA, "spec": {"devices": devices}, "status": status or {}})
    assert found is not None
    return found


def request(**exactly: Any) -> ClaimRequest:
    (found,) = claim({"requests": [{"name": "r", "exactly": {"deviceClassName": "c", **exactly}}]}).requests
    return found


def test_a_request() -> None:
    selector = {"cel": {"expression": "true"}}

    assert request(selectors=[selector, {}], allocationMode="ExactCount", count=2) == ClaimRequest(
        name="r", device_class="c", count=2, selectors=("true", "")
    )
    assert request(allocationMode="All").count is None
    assert request().count == 1
    # Neither false nor empty has an effect.
    assert request(adminAccess=False, tolerations=[]).unread == ()


@pytest.mark.parametrize(
    "exactly",
    [
        {"adminAccess": True},
        {"capacity": {"requests": {"memory": "1Gi"}}},
        {"allocationMode": "Most"},
        {"something": "new"},
    ],
)
def test_what_of_a_request_is_not_read_is_named(exactly: Json) -> None:
    assert len(request(**exactly).unread) == 1


def test_tolerations_of_a_request_and_taints_of_a_device() -> None:
    toleration = {"key": "sick", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9}

    assert request(tolerations=[toleration]).tolerations == (Toleration("sick", "Exists", "", "NoExecute"),)
    (device,) = piece({"taints": [{"key": "sick", "effect": "None"}, {"key": "a", "value": "b"}]}).devices
    assert device.taints == (Taint("sick", "", "None"), Taint("a", "b", ""))


@pytest.mark.parametrize(
    ("users", "entries"),
    [
        (set(), []),
        ({"train", "other"}, [{"resource": "pods", "name": "train"}, {"resource": "pods", "name": "other"}]),
        (None, [{"resource": "pods", "name": "train"}, {"resource": "podgroups", "name": "train"}]),
        (None, [{"resource": "pods", "apiGroup": "example.com", "name": "train"}]),
    ],
)
def test_pods_that_use_a_claim(users: set[str] | None, entries: list[Json]) -> None:
    assert claim({}, {"allocation": {}, "reservedFor": entries}).users == users


def test_a_claim_that_was_generated_for_a_pod() -> None:
    owners = [{"kind": "Pod", "name": "other"}, {"kind": "Pod", "name": "train", "controller": True}]
    made = read_claim({"metadata": METADATA | {"ownerReferences": owners}})

    assert made is not None
    assert made.owner == "train"
    assert claim({}).owner == ""


def test_alternatives_and_constraints_are_named() -> None:
    found = claim({"requests": [{"name": "r", "firstAvailable": [{}]}], "constraints": [{}]})

    assert [each.unread for each in found.requests] == [("alternatives of a request",)]
    assert found.unread == ("constraints of a claim",)


def test_an_allocation() -> None:
    field = {"key": "metadata.name", "operator": "In", "values": ["gpu-1"]}
    device = {"driver": "d", "pool": "gpu-1", "device": "gpu-0"}
    results = [device, device | {"adminAccess": True, "device": "gpu-1"}]
    nodes = {"nodeSelectorTerms": [{"matchFields": [field]}]}

    found = claim({}, {"allocation": {"devices": {"results": results}, "nodeSelector": nodes}})

    assert found == ResourceClaim(
        namespace="ml",
        name="gpu",
        requests=(),
        allocated=(DeviceName("d", "gpu-1", "gpu-0"),),
        node="gpu-1",
        nodes=(NodeTerm(fields=(Requirement("metadata.name", "In", ("gpu-1",)),)),),
    )
    anywhere = claim({}, {"allocation": {}})
    assert (anywhere.allocated, anywhere.node, anywhere.nodes) == ((), "", None)
    assert claim({}).allocated is None
    conditional = {"allocation": {"devices": {"results": [device | {"bindingConditions": ["ready"]}]}}}
    assert claim({}, conditional).unread == ("binding conditions of devices",)
    many = [{"resource": "pods", "name": "p"}] * 256
    assert claim({}, {"allocation": {}, "reservedFor": many}).unread == ("a claim of 256 pods",)


def piece(device: Json, **spec: Any) -> ResourceSlice:
    pool = {"name": "gpu-1", "generation": 3, "resourceSliceCount": 2}
    found = read_slice({"spec": {"driver": "d", "pool": pool, "devices": [device], **spec}})
    assert found is not None
    return found


def test_a_slice() -> None:
    attributes = {
        "type": {"string": "gpu"},
        "index": {"int": 0},
        "other.example.com/healthy": {"bool": True},
        "driverVersion": {"version": "570.1.2"},
    }
    device = {"name": "gpu-0", "attributes": attributes, "capacity": {"memory": {"value": "40Gi"}}}

    found = piece(device, nodeName="gpu-1")

    assert found == ResourceSlice(
        driver="d",
        pool="gpu-1",
        generation=3,
        slices_of_pool=2,
        node="gpu-1",
        devices=(
            OfferedDraDevice(
                name=DeviceName("d", "gpu-1", "gpu-0"),
                attributes={
                    "d/type": "gpu",
                    "d/index": 0,
                    "other.example.com/healthy": True,
                    "d/driverVersion": "570.1.2",
                },
                capacity={"d/memory": billionths("40Gi")},
            ),
        ),
    )
    assert isinstance(found.devices[0].attributes["d/driverVersion"], Version)
    assert piece({}, allNodes=True).unread == ()
    assert piece({}, perDeviceNodeSelection=True).unread == ("perDeviceNodeSelection",)
    counters = [{"name": "gpu", "counters": {"memory": {"value": "7"}, "odd": {"value": "much"}}}]
    shared = piece({"consumesCounters": [{"counterSet": "gpu", "counters": {"memory": {"value": "3"}}}]})
    assert shared.devices[0].counters == {"gpu/memory": billionths("3")}
    assert piece({"allowMultipleAllocations": True}).devices[0].shared
    shared = piece({}, sharedCounters=counters)
    assert (shared.counters, shared.unread) == (
        {"gpu/memory": billionths("7")},
        ("sharedCounters of devices",),
    )
    assert read_slice({"spec": {"driver": "d", "pool": {"name": "gpu-1"}}}) is None


@pytest.mark.parametrize(
    ("unread", "device"),
    [
        ((), {"taints": [{"effect": "NoExecute"}]}),
        (
            ("consumesCounters of devices",),
            {"consumesCounters": [{"counterSet": "a", "counters": {"b": {"value": "x"}}}]},
        ),
        (("allowMultipleAllocations",), {"allowMultipleAllocations": True}),
        (("bindingConditions",), {"bindingConditions": ["ready"]}),
        (("d/type of a device",), {"attributes": {"type": {"strings": ["a"]}}}),
        (("d/memory of a device",), {"capacity": {"memory": {"value": "much"}}}),
    ],
)
def test_what_of_a_device_is_not_read_is_named(unread: tuple[str, ...], device: Json) -> None:
    (found,) = piece(device).devices

    assert found.unread == unread


def test_a_class() -> None:
    spec = {"selectors": [{"cel": {"expression": "true"}}], "extendedResourceName": "nvidia.com/gpu"}

    assert read_class({"metadata": {"name": "gpu"}, "spec": spec}) == DeviceClass(
        name="gpu", selectors=("true",), extended_resource="nvidia.com/gpu"
    )
    assert read_class({"spec": spec}) is None
