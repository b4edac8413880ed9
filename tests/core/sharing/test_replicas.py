"""The number of slices of a device when some of them are unhealthy."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import GpuIdentity, NodeObject, OfferedDevice, SliceCount
from exporter.sharing.nvidia_plugin import slices_by_device
from tests.core.attribution.build import GIB, MIG, UUID, gpu, held, mig, mig_gpu, replicas, whole
from tests.core.sharing.build import OTHER_UUID, allocations, by, resolve

GPU = "nvidia.com/gpu"


def ids(*numbers, device=UUID, resource=GPU):
    """Return these offered replicas of a device."""
    return [OfferedDevice(resource, f"{device}::{number}") for number in numbers]


def node(capacity, allocatable, resource=GPU):
    """Return a node with this capacity and allocatable number."""
    return NodeObject(capacity={resource: capacity}, allocatable={resource: allocatable})


def found(offered, allocated=(), withdrawn=(), node_object=None, *, kept=(), earlier=()):
    """Return slices, unhealthy and lost of each device by uuid."""
    seen = {"withdrawn": tuple(withdrawn), "kept": frozenset(kept), "earlier": tuple(earlier)}
    answer = replace(allocations(list(allocated), offered), **seen)
    return {device.uuid: tuple(cut) for device, cut in slices_by_device(GPU, answer, node_object).items()}


CASES = {
    "all are healthy": (found(replicas(4)), (4, 0, 0)),
    "a hole": (found(ids(0, 2, 3)), (4, 1, 1)),
    "a hole that is held": (found(ids(0, 2, 3), held("a", f"{UUID}::1")), (4, 1, 0)),
    "the last was offered before": (found(ids(0, 1, 2), withdrawn=ids(3)), (4, 1, 1)),
    "the last was offered before, and is held": (
        found(ids(0, 1, 2), held("a", f"{UUID}::3"), ids(3)),
        (4, 1, 0),
    ),
    "another GPU has more": (found(ids(0, 1, 2) + replicas(4, OTHER_UUID)), (4, 1, 1)),
    "another GPU has more, and the last is held": (
        found(ids(0, 1, 2) + replicas(4, OTHER_UUID), held("a", f"{UUID}::3")),
        (4, 1, 0),
    ),
    "none is healthy": (found(replicas(4, OTHER_UUID), held("a", f"{UUID}::0")), (4, 4, 3)),
    "two GPUs lost different ones": (
        found(ids(0, 1, 3) + ids(0, 1, 2, device=OTHER_UUID), withdrawn=ids(2) + ids(3, device=OTHER_UUID)),
        (4, 1, 1),
    ),
    "two GPUs lost the last one, and one of them another": (
        found(ids(0, 2) + ids(0, 1, 2, device=OTHER_UUID), withdrawn=ids(1, 3) + ids(3, device=OTHER_UUID)),
        (4, 2, 2),
    ),
    "the only GPU lost several of the last, and another": (found(ids(1), withdrawn=ids(0, 2, 3)), (4, 3, 3)),
    "the node has one more": (found(ids(0, 1, 2), node_object=node(4, 3)), (4, 1, 1)),
    "the node has one more, which is held": (
        found(ids(0, 1, 2), held("a", f"{UUID}::3"), node_object=node(4, 3)),
        (4, 1, 0),
    ),
    "the node has no more than are offered": (
        found(ids(0, 1), withdrawn=ids(2, 3), node_object=node(2, 2)),
        (2, 0, 0),
    ),
    "the node has not reported yet": (
        found(ids(0, 1, 2), withdrawn=ids(3), node_object=node(4, 4)),
        (4, 1, 1),
    ),
    "the plugin was restarted with fewer": (found(replicas(2), earlier=ids(2, 3)), (2, 0, 0)),
    "another GPU is gone since the plugin was restarted": (
        found(replicas(4), node_object=node(4, 4), earlier=ids(0, 1, 2, 3, device=OTHER_UUID)),
        (4, 0, 0),
    ),
    "the plugin is away": (found(replicas(4), kept=[GPU]), (4, None, None)),
    "a whole GPU": (found(whole()), (1, 0, 0)),
    "an unhealthy whole GPU": (found(whole(OTHER_UUID), held("a", UUID)), (1, 1, 0)),
    "an unhealthy whole GPU that is free": (found(whole(OTHER_UUID), withdrawn=whole()), (1, 1, 1)),
}
UNKNOWN = {
    "all GPUs lost the same last one": found(
        ids(0, 1, 2) + ids(0, 1, 2, device=OTHER_UUID), withdrawn=ids(3) + ids(3, device=OTHER_UUID)
    ),
    "all GPUs lost the same last ones": found(
        ids(0, 1) + ids(0, 1, device=OTHER_UUID), withdrawn=ids(2, 3) + ids(2, 3, device=OTHER_UUID)
    ),
    "all GPUs lost the same last one, and the node's object lags behind": found(
        ids(0, 1, 2) + ids(0, 1, 2, device=OTHER_UUID),
        withdrawn=ids(3) + ids(3, device=OTHER_UUID),
        node_object=node(8, 8),
    ),
    "the plugin was restarted without the last": found(replicas(3), earlier=ids(3)),
    "the only GPU lost several of the last": found(ids(0, 1), withdrawn=ids(2, 3)),
    "a number beyond all that are offered is held": found(ids(0, 1), held("a", f"{UUID}::3")),
    "such a number, and another GPU": found(ids(0, 1) + replicas(2, OTHER_UUID), held("a", f"{UUID}::3")),
    "such a number, and the node has no more": found(
        ids(0, 1), held("a", f"{UUID}::3"), node_object=node(2, 2)
    ),
    "a capacity that is no multiple": found(ids(0, 1) + ids(0, device=OTHER_UUID), node_object=node(5, 3)),
    "nothing is offered": found([], held("a", f"{UUID}::0")),
    "both whole and in replicas": found(replicas(4), held("a", UUID)),
    "a number without end": found(ids("9" * 500)),
    "a whole GPU that the node has no more": found(
        whole(OTHER_UUID), held("a", UUID), node_object=node(1, 1)
    ),
}


@pytest.mark.parametrize(("cut", "expected"), CASES.values(), ids=CASES)
def test_the_slices_of_a_gpu(cut, expected):
    assert cut[UUID] == expected


@pytest.mark.parametrize("cut", UNKNOWN.values(), ids=UNKNOWN)
def test_contradictions_leave_the_slices_unknown(cut):
    assert UUID not in cut


def shares(offered, allocated, **more):
    """Return compute and memory of each holder, as the systems report them."""
    holdings = resolve(
        [gpu(), gpu(uuid=OTHER_UUID, identity=GpuIdentity(uuid=OTHER_UUID, index=1))],
        allocated,
        offered,
        **more,
    )
    return by(holdings, "holder.pod", "compute_entitled", "memory_entitled")


@pytest.mark.parametrize("unhealthy", range(4))
def test_an_unhealthy_replica_changes_no_share(unhealthy: int):
    offered = ids(*({0, 1, 2, 3} - {unhealthy})) + replicas(4, OTHER_UUID)
    allocated = held("a", f"{UUID}::0", f"{UUID}::1") + held("b", f"{UUID}::3")
    assert shares(offered, allocated) == {"a": (0.5, 8 * GIB), "b": (0.25, 4 * GIB)}


def test_the_slices_of_a_gpu_count_unhealthy_ones():
    holdings = resolve(gpu(), held("a", f"{UUID}::0"), ids(0, 2, 3))
    (count,) = holdings.devices[UUID, ""].slices
    assert count == SliceCount(GPU, 4, 1, 1, 1)
    assert count.free == 2


def test_replicas_of_a_mig_device():
    holdings = resolve(mig_gpu([mig()]), held("a", f"{MIG}::0"), ids(0, 2, device=MIG))
    assert holdings.devices[UUID, MIG].slices == (SliceCount(GPU, 3, 1, 1, 1),)
    assert holdings.holdings[0].compute_entitled == pytest.approx(3 / 7 / 3)


def test_replicas_of_gke():
    offered = [OfferedDevice(GPU, f"nvidia0/vgpu{number}") for number in (0, 1, 3)]
    holdings = resolve(gpu(), held("a", "nvidia0/vgpu2"), offered)
    assert holdings.devices[UUID, ""].slices == (SliceCount(GPU, 4, 1, 1, 0),)
    assert holdings.holdings[0].compute_entitled == 0.25


def test_a_resource_that_was_renamed_leaves_its_old_holders_unknown():
    """The plugin gives the same GPU out in replicas under another name."""
    renamed = replicas(4, resource="nvidia.com/gpu.shared")
    allocated = held("old", UUID) + held("new", f"{UUID}::1", resource="nvidia.com/gpu.shared")
    assert shares(renamed, allocated) == {"old": (None, None), "new": (0.25, 4 * GIB)}


@given(st.data(), st.integers(1, 3), st.integers(2, 6))
def test_a_count_is_right_or_unknown(data, gpus, count):
    uuids = [f"GPU-{place:08x}-0000-0000-0000-000000000000" for place in range(gpus)]
    everything = [each for uuid in uuids for each in replicas(count, uuid)]
    healthy = data.draw(st.sets(st.sampled_from(everything), min_size=1))
    in_use = data.draw(st.sets(st.sampled_from(everything)))
    allocated = [each for n, one in enumerate(sorted(in_use)) for each in held(f"p{n}", one.device_id)]
    node_object = found(sorted(healthy), allocated, node_object=node(len(everything), len(healthy)))
    of_devices = {each.device_id.partition("::")[0] for each in healthy | in_use}
    for uuid, (slices, unhealthy, lost) in node_object.items():
        offered = {each for each in healthy if each.device_id.startswith(uuid)}
        taken = {each for each in in_use if each.device_id.startswith(uuid)}
        if len(of_devices) == gpus:
            assert slices == count
            assert unhealthy == count - len(offered)
            assert lost == count - len(offered | taken)


some = st.sets(st.integers(0, 7))


@given(some, some, some)
def test_holders_never_have_more_slices_than_there_are(offered, in_use, withdrawn):
    allocated = [each for number in in_use for each in held(f"p{number}", f"{UUID}::{number}")]
    for slices, unhealthy, lost in found(ids(*offered), allocated, ids(*withdrawn)).values():
        assert len(in_use) <= slices
        assert 0 <= lost <= unhealthy <= slices
