"""The messages against bytes written by hand, and the folding of them against sets."""

import contextlib
import random
from dataclasses import replace

import pytest
from google.protobuf import descriptor_pool
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import Allocation, ClaimedDevice, ContainerRef, OfferedDevice
from podresources import messages

NAMES = st.sampled_from(["a", "b", "c"])
TRIPLES = st.lists(st.tuples(NAMES, NAMES, NAMES, NAMES, NAMES))


def field(number: int, value: bytes) -> bytes:
    """Return one length-delimited field of at most 127 bytes."""
    tag = number << 3 | 2
    key = bytes([tag]) if tag < 128 else bytes([tag & 127 | 128, tag >> 7])
    return key + bytes([len(value)]) + value


def long_field(number: int, value: bytes) -> bytes:
    """Return one length-delimited field of at most 16383 bytes."""
    return bytes([number << 3 | 2, len(value) & 127 | 128, len(value) >> 7]) + value


TOPOLOGY = field(3, field(1, b"\x08\x01"))
DEVICE = field(1, b"nvidia.com/gpu") + field(2, b"GPU-1") + TOPOLOGY
UNKNOWN = field(4, b"from a newer kubelet") + field(9, b"\xff")
CONTAINER = field(1, b"main") + field(2, DEVICE) + UNKNOWN
LIST = field(1, field(1, b"train") + field(2, b"ml") + field(3, CONTAINER) + UNKNOWN)


def test_field_numbers_of_the_list() -> None:
    assert messages.Lists().listed(LIST).allocated == (
        Allocation(ContainerRef("ml", "train", "main"), "nvidia.com/gpu", "GPU-1"),
    )


def test_field_numbers_of_allocatable_devices() -> None:
    answer = field(1, DEVICE) + field(2, b"\x00\x01") + field(1, DEVICE)
    assert messages.offered(answer) == (OfferedDevice("nvidia.com/gpu", "GPU-1"),)


CDI = b"k8s.gpu.nvidia.com/claim=uid-gpu-1"
CLAIMED = field(1, field(1, CDI)) + field(2, b"gpu.nvidia.com") + field(3, b"node-1") + field(4, b"gpu-1")
CLAIM = field(1, b"old class") + field(2, b"whole") + field(3, b"ml")


def test_field_numbers_of_claims() -> None:
    devices = long_field(4, CLAIMED + field(5, b"share-a")) + long_field(4, CLAIMED + field(9, b"\xff"))
    resources = long_field(5, CLAIM + devices)
    answer = b"".join(
        long_field(1, field(1, b"train") + field(2, b"ml") + long_field(3, field(1, name) + resources))
        for name in (b"main", b"aside")
    )
    whole, share = (
        ClaimedDevice(
            ContainerRef("ml", "train", "aside"),
            "gpu.nvidia.com",
            "node-1",
            "gpu-1",
            claim_namespace="ml",
            claim="whole",
            share_id=share_id,
            cdi=(CDI.decode(),),
        )
        for share_id in ("", "share-a")
    )
    main = ContainerRef("ml", "train", "main")
    assert messages.Lists().listed(answer) == (
        (),
        (whole, share, replace(whole, holder=main), replace(share, holder=main)),
        {main, whole.holder, main._replace(container="")},
    )


def test_a_stuck_pod_with_thousands_of_entries() -> None:
    """Entries of one device fold to one, with every CDI name that any of them had."""
    answer = messages.ListPodResourcesResponse()
    container = answer.pod_resources.add(namespace="ml", name="stuck").containers.add(name="main")
    for number in range(5000):
        claim = messages.DynamicResource(claim_name="whole", claim_namespace="ml")
        names = [{"name": "a"}, {"name": f"b{number % 2}"}]
        claim.claim_resources.add(driver_name="gpu.nvidia.com", device_name="gpu-0", cdi_devices=names)
        container.dynamic_resources.append(claim.SerializeToString())
    (found,) = messages.Lists().listed(answer.SerializeToString()).claims
    assert (found.device, found.cdi) == ("gpu-0", ("a", "b0", "b1"))


def test_a_claim_that_is_no_message_is_no_answer() -> None:
    """An entry that cannot be decoded makes the answer one that cannot, not one without the claim."""
    answer = messages.ListPodResourcesResponse()
    container = answer.pod_resources.add(namespace="ml", name="odd").containers.add(name="main")
    for broken in (b"\xff", field(2, b"\xff")):
        container.dynamic_resources[:] = [broken]
        with pytest.raises(messages.DECODE_ERRORS):
            messages.Lists().listed(answer.SerializeToString())


def test_topology() -> None:
    """What the software kubelet writes has the numbers of the kubelet's topology."""
    device = messages.ContainerDevices(
        resource_name="nvidia.com/gpu", device_ids=["GPU-1"], topology={"nodes": [{"ID": 1}]}
    )
    assert device.SerializeToString() == DEVICE


def test_field_numbers_of_a_pod() -> None:
    metadata = field(1, b"train") + field(3, b"ml") + field(5, b"uid-1")
    metadata += field(11, field(1, b"app") + field(2, b"x")) + field(12, field(1, b"note") + field(2, b"y"))
    limit = field(1, b"nvidia.com/gpu") + field(2, field(1, b"2"))
    container = field(1, b"main") + field(7, b"secret") + field(8, field(1, limit))
    spec = field(2, container) + field(20, field(1, b"init"))
    statuses = [
        field(number, field(1, name) + field(8, b"containerd://" + name))
        for number, name in ((8, b"main"), (10, b"init"), (13, b"debug"))
    ]
    pod = messages.Pod.FromString(
        field(1, metadata) + field(2, spec) + field(3, b"".join([field(1, b"Running"), *statuses]))
    )
    assert [(entry.key, entry.value) for entry in pod.metadata.labels] == [("app", "x")]
    assert [(entry.key, entry.value) for entry in pod.metadata.annotations] == [("note", "y")]
    assert [container.name for container in pod.spec.initContainers] == ["init"]
    (main,) = pod.spec.containers
    assert [(each.key, each.value.string) for each in main.resources.limits] == [("nvidia.com/gpu", "2")]
    assert pod.status.phase == "Running"
    assert (pod.metadata.name, pod.metadata.namespace, pod.metadata.uid) == ("train", "ml", "uid-1")
    assert [
        (status.name, status.containerID)
        for kind in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
        for status in getattr(pod.status, kind)
    ] == [
        ("main", "containerd://main"),
        ("init", "containerd://init"),
        ("debug", "containerd://debug"),
    ]


def test_private_pool() -> None:
    """The messages stay out of the pool that all libraries of a process share."""
    assert messages.Pod.DESCRIPTOR.file.pool is not descriptor_pool.Default()


@given(st.binary())
def test_any_bytes(answer: bytes) -> None:
    for decode in (messages.Lists().listed, messages.offered, messages.Pod.FromString):
        with contextlib.suppress(*messages.DECODE_ERRORS):
            decode(answer)


@given(TRIPLES, st.randoms(use_true_random=False))
def test_allocations_are_a_sorted_set(triples: list[tuple[str, ...]], rng: random.Random) -> None:
    again = [*triples, *rng.choices(triples, k=len(triples))] if triples else []
    rng.shuffle(again)
    answer = messages.ListPodResourcesResponse()
    for namespace, pod, container, resource, device_id in again:
        listed = answer.pod_resources.add(namespace=namespace, name=pod).containers.add(name=container)
        listed.devices.add(resource_name=resource, device_ids=[device_id])
    want = sorted({Allocation(ContainerRef(n, p, c), r, d) for n, p, c, r, d in triples})
    assert list(messages.Lists().listed(answer.SerializeToString()).allocated) == want


@given(TRIPLES, st.randoms(use_true_random=False))
def test_claims_are_a_sorted_set(claimed: list[tuple[str, ...]], rng: random.Random) -> None:
    again = [*claimed, *rng.choices(claimed, k=len(claimed))] if claimed else []
    rng.shuffle(again)
    answer = messages.ListPodResourcesResponse()
    for namespace, pod, container, claim, device in again:
        listed = answer.pod_resources.add(namespace=namespace, name=pod).containers.add(name=container)
        resource = messages.DynamicResource(claim_name=claim, claim_namespace=namespace)
        resource.claim_resources.add(driver_name="d", pool_name="p", device_name=device)
        listed.dynamic_resources.append(resource.SerializeToString())
    want = sorted(
        {
            ClaimedDevice(ContainerRef(n, p, c), "d", "p", device, claim_namespace=n, claim=claim)
            for n, p, c, claim, device in claimed
        },
        key=lambda each: (each.holder, each.device, each.claim),
    )
    assert list(messages.Lists().listed(answer.SerializeToString()).claims) == want


@given(st.lists(st.tuples(NAMES, st.lists(NAMES))))
def test_offers_are_a_sorted_set(groups: list[tuple[str, list[str]]]) -> None:
    answer = messages.AllocatableResourcesResponse(
        devices=[{"resource_name": resource, "device_ids": ids} for resource, ids in groups]
    )
    want = sorted({OfferedDevice(resource, device_id) for resource, ids in groups for device_id in ids})
    assert list(messages.offered(answer.SerializeToString())) == want
