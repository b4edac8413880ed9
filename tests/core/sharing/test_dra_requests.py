"""Claims with several requests: each container has the devices of the requests that it names."""

from dataclasses import replace

import pytest

from exporter.model import ClaimedDevice, DeviceKey, Holdings, NamedRequest, PodIdentity
from exporter.sharing.base.view import Objections
from exporter.sharing.dra import NVIDIA_DRIVER
from exporter.sharing.dra.checkpoint import Checkpoint, Prepared
from tests.core.attribution.build import GIB, UUID, gpu
from tests.core.sharing.build import OTHER_UUID, container, pod, pods, resolve

UID = "11111111-2222-3333-4444-555555555555"
TRAIN, EVAL = "container-0-request-0", "container-1-request-0"
WHOLE = (16 * GIB, 1.0, "exclusive", "hard")
CHECKPOINT = {"gpu-0": TRAIN, "gpu-1": EVAL}
NAMED = (("train", TRAIN), ("eval", EVAL))


def two_gpus() -> list:
    """Return GPUs with the minors 0 and 1."""
    return [
        gpu(uuid=uuid, identity=replace(gpu(uuid=uuid).identity, index=minor, minor=minor))
        for minor, uuid in enumerate((UUID, OTHER_UUID))
    ]


def listed(*entries, name="job", claim="job-gpus") -> list[ClaimedDevice]:
    """Return what the kubelet lists: devices by container, all of one claim."""
    return [
        ClaimedDevice(
            holder=container(name, of),
            driver=NVIDIA_DRIVER,
            pool="node-1",
            device=device,
            claim_namespace="ml",
            claim=claim,
            cdi=(f"k8s.{NVIDIA_DRIVER}/claim={UID}-{device}",),
        )
        for of, *devices in entries
        for device in devices
    ]


def job(*named, claim="job-gpus") -> dict[str, PodIdentity]:
    """Return the pod whose containers name these requests."""
    made = pod("job", containers=("train", "eval"))
    requests = tuple(NamedRequest(of, claim, request) for of, request in named)
    return pods(replace(made, details=replace(made.details, requests=requests)))


def checkpoint(requests) -> dict[str, Checkpoint]:
    """Return the driver's checkpoint with the request of each device."""
    prepared = {(UID, device): (Prepared(request=request),) for device, request in requests.items()}
    return {"dra": Checkpoint(prepared=prepared)}


def rows(found: Holdings) -> dict[tuple[str, str], tuple]:
    """Return the entitlement and the sharing of each container on each device."""
    return {
        (held.holder.container, held.device.uuid): (
            held.memory_entitled,
            held.compute_entitled,
            held.sharing,
            held.isolation,
        )
        for held in found.holdings
    }


BOTH = listed(("train", "gpu-0", "gpu-1"), ("eval", "gpu-0", "gpu-1"))


def test_each_container_has_the_devices_of_its_request():
    """The kubelet lists both devices for both containers, each of which names one request."""
    found = resolve(two_gpus(), claims=BOTH, pods=job(*NAMED), files=checkpoint(CHECKPOINT))

    assert rows(found) == {("train", UUID): WHOLE, ("eval", OTHER_UUID): WHOLE}
    assert found.unresolved == {}
    assert [found.devices[DeviceKey(uuid)].slices[0].allocated for uuid in (UUID, OTHER_UUID)] == [1, 1]


def test_an_alternative_belongs_to_its_request():
    """The request of a device may be ``request/alternative``; a container names the request."""
    chosen = {"gpu-0": f"{TRAIN}/large", "gpu-1": f"{EVAL}/small"}
    found = resolve(two_gpus(), claims=BOTH, pods=job(*NAMED), files=checkpoint(chosen))

    assert rows(found) == {("train", UUID): WHOLE, ("eval", OTHER_UUID): WHOLE}


def test_a_container_that_names_no_request_has_all():
    """Without a request a container has all devices of the claim, also those of another's request."""
    named = (("train", ""), ("eval", EVAL))
    found = resolve(two_gpus(), claims=BOTH, pods=job(*named), files=checkpoint(CHECKPOINT))

    half = (8 * GIB, 0.5, "dra", "none")
    assert rows(found) == {("train", UUID): WHOLE, ("train", OTHER_UUID): half, ("eval", OTHER_UUID): half}


@pytest.mark.parametrize("named", [(), (("train", TRAIN),)])
def test_a_claim_that_one_container_names_is_its_own(named):
    """Then it has all devices, whatever the requests are, and whether or not they are known."""
    found = resolve(two_gpus(), claims=listed(("train", "gpu-0", "gpu-1")), pods=job(*named))

    assert rows(found) == {("train", UUID): WHOLE, ("train", OTHER_UUID): WHOLE}


def test_a_claim_of_one_device_is_shared():
    """There is one request, which both containers must have named."""
    found = resolve(two_gpus(), claims=listed(("train", "gpu-0"), ("eval", "gpu-0")))

    half = (8 * GIB, 0.5, "dra", "none")
    assert rows(found) == {("train", UUID): half, ("eval", UUID): half}


def test_a_kubelet_that_lists_by_request_is_believed():
    """One that lists different devices for the two containers has looked at their requests."""
    found = resolve(two_gpus(), claims=listed(("train", "gpu-0"), ("eval", "gpu-1")))

    assert rows(found) == {("train", UUID): WHOLE, ("eval", OTHER_UUID): WHOLE}


UNKNOWN = {
    "no object of the pod": ({}, CHECKPOINT),
    "an object without names": ((), CHECKPOINT),
    "no checkpoint": (NAMED, {}),
    "a checkpoint of one device": (NAMED, {"gpu-0": TRAIN}),
}


@pytest.mark.parametrize(("named", "requests"), UNKNOWN.values(), ids=UNKNOWN)
def test_what_is_not_known_is_absent(named, requests):
    """Without names or requests no container has a device for certain, and nothing is divided by guess."""
    objections = Objections()
    known = {} if named == {} else job(*named)
    found = resolve(two_gpus(), claims=BOTH, pods=known, files=checkpoint(requests), objections=objections)

    certain = {("train", UUID): WHOLE} if len(requests) == 1 else {}
    assert rows(found).keys() <= certain.keys()
    assert DeviceKey(OTHER_UUID) in found.unplaced
    assert all(count.allocated is None for count in found.devices[DeviceKey(OTHER_UUID)].slices)
    assert found.devices[DeviceKey(OTHER_UUID)].isolation == ""
    assert found.unresolved[NVIDIA_DRIVER] == (1 if len(requests) == 1 else 2)
    assert container("job", "eval") in found.unresolved_holders
    assert objections.counts["dra_claim"] == 1


def test_a_holder_that_may_share_its_device_has_no_certain_entitlement():
    """One container has all devices for certain; whether the other has one of them is not known."""
    found = resolve(two_gpus(), claims=BOTH, pods=job(("train", ""), ("eval", EVAL)))

    unknown = (None, None, "dra", "")
    assert rows(found) == {("train", UUID): unknown, ("train", OTHER_UUID): unknown}
    assert {DeviceKey(UUID), DeviceKey(OTHER_UUID)} <= found.unplaced
    assert not any(device.exclusive for device in found.devices.values())


def test_another_claim_of_a_doubted_device_has_no_certain_entitlement():
    """It would be the only certain holder, and not the only one."""
    other = listed(("main", "gpu-0"), name="other", claim="other")
    found = resolve(two_gpus(), claims=[*BOTH, *other])

    assert rows(found) == {("main", UUID): (None, None, "dra", "")}


def test_names_count_before_what_is_listed():
    """A driver of another request may list no device: the only listed one is not shared for that."""
    both = listed(("train", "gpu-0"), ("eval", "gpu-0"))
    found = resolve(two_gpus(), claims=both, pods=job(*NAMED), files=checkpoint(CHECKPOINT))

    assert rows(found) == {("train", UUID): WHOLE}
