"""Grants and ids whose device cannot be told: nothing certain is said of the devices that they may mean."""

from dataclasses import replace

import pytest

from exporter.model import Allocation, ClaimedDevice, DeviceKey, HostDevices, Problem
from exporter.sharing.dra import NVIDIA_DRIVER
from exporter.sharing.dra.amd import AMD_DRIVER
from exporter.sharing.dra.checkpoint import Checkpoint, Prepared
from tests.core.attribution.build import (
    MIG,
    UUID,
    attribute,
    gpu,
    held,
    mig,
    mig_gpu,
    replicas,
    row,
    whole,
    workloads,
)
from tests.core.sharing.build import OTHER_UUID, container, numbered, pod, pods, resolve

OTHER_MIG = "MIG-00000000-0000-0000-0000-00000000000c"
PARTS = {DeviceKey(UUID, MIG), DeviceKey(UUID, OTHER_MIG)}
OTHER = DeviceKey(OTHER_UUID)


def node() -> list:
    """Return a GPU with two MIG devices, and a whole one."""
    return [mig_gpu([mig(gi=1), mig(gi=2, uuid=OTHER_MIG)]), numbered(1, 1)]


def claim(name, device, driver=NVIDIA_DRIVER, *, of="main", claim="gpus") -> ClaimedDevice:
    """Return a device of a claim, as the kubelet lists it for a container."""
    return ClaimedDevice(
        holder=container(name, of),
        driver=driver,
        pool="node",
        device=device,
        claim_namespace="ml",
        claim=claim,
    )


def test_an_annotation_with_a_gpu_of_several_parts_makes_these_doubtful():
    """HAMi 2.5 numbers the MIG devices of a GPU by itself."""
    annotated = pods(pod("train", {"hami.io/vgpu-devices-allocated": f"{UUID}[1-0],NVIDIA,10240,0:;"}))
    found = resolve(node(), held("train", f"{UUID}-4"), pods=annotated)
    assert found.unplaced == PARTS
    assert found.unresolved == {"nvidia.com/gpu": 1}


def test_a_claim_of_a_part_without_placements_makes_the_parts_of_its_gpu_doubtful():
    mine = [claim("train", "gpu-0-mig-1g10gb-19-4"), claim("eval", "gpu-1", claim="other")]
    found = resolve(node(), claims=mine)
    assert found.unplaced == PARTS
    assert [(held.holder.pod, held.compute_entitled) for held in found.holdings] == [("eval", 1.0)]


@pytest.mark.parametrize("name", ["gpu-vfio-3", "gpu-7"])
def test_a_claim_of_a_gpu_that_the_driver_does_not_list_makes_nothing_doubtful(name):
    assert resolve(node(), claims=[claim("vm", name)]).unplaced == frozenset()


def test_a_claim_of_an_unknown_name_may_mean_any_device_that_no_other_claim_has():
    found = resolve(node(), claims=[claim("train", "card-a"), claim("eval", "gpu-1", claim="other")])
    assert found.unplaced == PARTS


def test_a_claim_of_another_maker_makes_no_nvidia_gpu_doubtful():
    assert resolve(node(), claims=[claim("vm", "gpu-vfio-1", AMD_DRIVER)]).unplaced == frozenset()


def test_two_containers_with_one_claim_may_have_the_same_device_under_an_unknown_name():
    claims = [claim("train", "gpu-1"), claim("train", "card-a", of="eval")]
    found = resolve(node(), claims=claims)
    assert [(held.memory_entitled, held.compute_entitled, held.isolation) for held in found.holdings] == [
        (None, None, "")
    ]


@pytest.mark.parametrize(
    ("device_id", "doubted"),
    [
        ("all", {*PARTS, OTHER}),
        (UUID, PARTS),
        (UUID.removeprefix("GPU-"), PARTS),
        (f"{UUID}::0", PARTS),
        (f"{UUID}[1-0]", PARTS),
        (f"MIG-{UUID}/9/0", PARTS),
        ("nvidia0", PARTS),
        ("nvidia0/gi9", PARTS),
        ("nvidia7", set()),
        ("GPU-00000000-0000-0000-0000-0000000000aa", set()),
    ],
)
def test_an_id_of_the_plugin_makes_doubtful_what_it_may_mean(device_id, doubted):
    assert resolve(node(), held("train", device_id)).unplaced == doubted


def test_an_id_that_may_mean_any_device_is_of_one_that_offers_its_resource():
    other_uuid = "GPU-00000000-0000-0000-0000-0000000000aa"
    gpus = [gpu(), numbered(1, 1), numbered(2, 2, other_uuid)]
    offered = replicas(2) + replicas(2, OTHER_UUID)
    found = resolve(gpus, held("train", "all") + held("eval", f"{UUID}::1"), offered)
    assert found.unplaced == {DeviceKey(UUID), OTHER}
    counts = {key: device.slices[0].allocated for key, device in found.devices.items() if device.slices}
    assert counts == {DeviceKey(UUID): None, OTHER: None}


def test_a_gpu_that_is_passed_through_makes_nothing_doubtful():
    address = "0000:07:00.0"
    vm = [Allocation(container("vm"), "nvidia.com/GH100_H100_SXM5_80GB", address)]
    host = HostDevices(passed_through=frozenset({address}))
    assert resolve(node(), vm, host=host).unplaced == frozenset()


def test_the_use_of_a_whole_gpu_is_not_its_holders_if_another_container_may_hold_it():
    who = workloads(view=False)
    one = gpu(None)
    certain = attribute([one], resolve(one, held("a", UUID), whole()), who)
    doubted = attribute([one], resolve(one, held("a", UUID) + held("b", "unreadable"), whole()), who)
    assert row(certain, "a").memory_used is not None
    assert row(doubted, "a").memory_used is None
    assert [(gpu.holders, gpu.memory_entitled) for gpu in doubted.gpus] == [(None, None)]


def test_without_a_checkpoint_one_of_two_claims_of_a_device_may_only_monitor_it():
    """With admin access it holds nothing: how many hold the device is unknown."""
    claims = [claim("train", "gpu-1"), claim("agent", "gpu-1", claim="other")]
    assert resolve(node(), claims=claims).unplaced == {OTHER}
    uid = "11111111-2222-3333-4444-555555555555"
    noted = [replace(each, cdi=(f"k8s.{NVIDIA_DRIVER}/claim={uid}-gpu-1",)) for each in claims]
    checkpoint = Checkpoint(prepared={(uid, "gpu-1"): (Prepared(request="gpu"),)})
    assert resolve(node(), claims=noted, files={"dra": checkpoint}).unplaced == frozenset()


def test_with_a_checkpoint_that_cannot_be_read_any_claim_may_only_monitor():
    """Without any, as where it is not mounted, claims count."""
    claims = [claim("train", "gpu-1")]
    broken = Checkpoint(problems=(Problem("files", "checkpoint.json", "is not JSON"),))
    found = resolve(node(), claims=claims, files={"dra": broken})
    assert (found.unplaced, found.holdings, found.unresolved) == ({OTHER}, (), {NVIDIA_DRIVER: 1})
    assert len(resolve(node(), claims=claims, files={"dra": Checkpoint(missing=True)}).holdings) == 1
