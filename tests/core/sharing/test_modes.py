"""Sharing mode and isolation of devices; offered and allocated slices."""

import pytest

from exporter.model import DeviceKey, DeviceSharing, GpuReading, NodeObject, SliceCount
from exporter.sharing import resolve_holdings
from tests.core.attribution.build import MIG, UUID, gpu, held, mig, mig_gpu, process, replicas, whole
from tests.core.sharing.build import OTHER_UUID, numbered, resolve, rows


def sharing(node, allocated=(), offered=(), key=(UUID, "")) -> DeviceSharing:
    """Return how a device of the node is shared."""
    return resolve(node, allocated, offered).devices[DeviceKey(*key)]


def mode(*arguments, **keywords) -> tuple[str, str, bool]:
    """Return mode, isolation and whether one holder at most is meant."""
    found = sharing(*arguments, **keywords)
    return found.sharing, found.isolation, found.exclusive


EXCLUSIVE = ("exclusive", "hard", True)
TIME_SLICING = ("time-slicing", "none", False)
MPS = ("mps", "soft", False)


def test_exclusive():
    assert mode(gpu(), [], whole()) == EXCLUSIVE
    assert mode(gpu(), held("a", UUID), whole()) == EXCLUSIVE
    assert mode(gpu(), held("a", UUID), None) == EXCLUSIVE


def test_time_slicing():
    assert mode(gpu(), [], replicas(4)) == TIME_SLICING
    assert mode(gpu(), held("a", f"{UUID}::0"), replicas(4)) == TIME_SLICING
    assert mode(gpu(), held("a", f"{UUID}::0"), None) == TIME_SLICING
    assert mode(gpu(), [], replicas(1)) == TIME_SLICING


def test_gke_time_slicing():
    """GKE's spelling of a replica counts as well."""
    node = numbered(0, 0, UUID)
    assert mode(node, held("a", "nvidia0/vgpu0"), None) == TIME_SLICING
    assert mode(node, held("a", "nvidia0"), None) == EXCLUSIVE


def test_mps_by_compute_mode():
    """The MPS server puts its GPU into the exclusive-process mode."""
    assert mode(gpu(compute_mode="exclusive_process"), [], replicas(4)) == MPS
    assert mode(gpu(compute_mode="default"), [], replicas(4)) == TIME_SLICING
    assert mode(gpu(compute_mode=None), [], replicas(4)) == TIME_SLICING


def test_mps_by_its_clients():
    node = gpu([process(1, kind="mps"), process(2)], compute_mode=None)
    assert mode(node, [], replicas(4)) == MPS
    assert mode(gpu([process(2)], compute_mode=None), [], replicas(4)) == TIME_SLICING


def test_the_compute_mode_alone_is_not_mps():
    assert mode(gpu(compute_mode="exclusive_process"), held("a", UUID), whole()) == EXCLUSIVE


def test_nothing_offered_and_nothing_held():
    assert mode(gpu(), [], []) == ("none", "none", False)
    assert mode(gpu(), [], None) == ("unknown", "", False)
    assert mode(GpuReading(identity=gpu().identity, up=False), [], []) == ("unknown", "", False)


def test_mig():
    """A MIG device is kept apart by the hardware, time-sliced replicas of it are not."""
    node = mig_gpu([mig(), mig(uuid="MIG-2", gi=2)])
    offered = whole(MIG) + replicas(3, "MIG-2")
    assert mode(node, [], offered, key=(UUID, MIG)) == ("mig", "hard", True)
    assert mode(node, [], offered, key=(UUID, "MIG-2")) == ("mig-time-slicing", "none", False)
    assert mode(node, held("a", f"{MIG}::0"), None, key=(UUID, MIG)) == ("mig-time-slicing", "none", False)


def test_each_device_has_a_mode_of_its_own():
    node = [numbered(0, 0, UUID), numbered(1, 1, OTHER_UUID)]
    offered = replicas(2) + whole(OTHER_UUID)
    assert mode(node, [], offered) == TIME_SLICING
    assert mode(node, [], offered, key=(OTHER_UUID, "")) == EXCLUSIVE


def test_slices_offered_and_allocated():
    offered = replicas(4) + whole(resource="x.io/gpu")
    allocated = held("a", f"{UUID}::0", f"{UUID}::3") + held("b", f"{UUID}::1")
    assert sharing(gpu(), allocated, offered).slices == (
        SliceCount("nvidia.com/gpu", 4, 3, 0, 0),
        SliceCount("x.io/gpu", 1, 0, 0, 0),
    )


def test_an_id_of_two_containers_is_one_slice():
    """While a pod ends and its successor starts, both may be listed with the same id."""
    holdings = resolve(gpu(), held("a", f"{UUID}::0") + held("b", f"{UUID}::0"), replicas(4))
    assert holdings.devices[UUID, ""].slices == (SliceCount("nvidia.com/gpu", 4, 1, 0, 0),)
    assert rows(holdings, "slices") == [1, 1]


def test_an_id_repeated_for_numa_nodes_is_one_slice():
    once = resolve(gpu(), held("a", f"{UUID}::0"), replicas(4))
    assert resolve(gpu(), held("a", f"{UUID}::0", f"{UUID}::0"), replicas(4) * 2) == once


def test_an_old_kubelet_leaves_the_number_offered_unknown():
    assert sharing(gpu(), held("a", f"{UUID}::0"), None).slices == (SliceCount("nvidia.com/gpu", None, 1),)


def test_an_id_that_is_no_longer_offered_leaves_the_number_unknown():
    held_one, unknown = held("a", f"{UUID}::7"), (SliceCount("nvidia.com/gpu", None, 1),)
    assert sharing(gpu(), held_one, replicas(4)).slices == unknown
    assert sharing(gpu(), held_one, []).slices == unknown


@pytest.mark.parametrize("node", [gpu(), mig_gpu([mig()])])
def test_a_kubelet_that_never_answered(node: GpuReading):
    holdings = resolve_holdings([node], None)
    assert not holdings.known
    assert holdings.holdings == ()
    assert set(holdings.devices.values()) == {DeviceSharing()}


def test_a_replicated_gpu_without_readings_has_an_unknown_mode():
    lost = GpuReading(identity=gpu().identity, up=False, mig_enabled=False)
    assert mode(lost, [], replicas(2)) == ("unknown", "", False)


def test_labels_give_the_mode_of_a_lost_gpu():
    lost = GpuReading(identity=gpu().identity, up=False, mig_enabled=False)
    labels = {"nvidia.com/gpu.sharing-strategy": "mps"}
    holdings = resolve(lost, [], replicas(2), node=NodeObject(labels=labels)).devices[UUID, ""]
    assert (holdings.sharing, holdings.isolation, holdings.exclusive) == MPS
