"""Which resources are GPUs, and what counts as unresolved."""

import re

import pytest

from exporter.model import Allocation, SliceCount
from tests.core.attribution.build import MIG, UUID, gpu, held, mig, mig_gpu, replicas, whole
from tests.core.sharing.build import container, numbered, only, resolve, where

LOST = "GPU-99999999-0000-0000-0000-000000000000"


@pytest.mark.parametrize(
    "resource",
    [
        *("nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb"),
        *("nvidia.com/mig-1g.5gb.me", "nvidia.com/mig-1g.5gb.shared"),
        *("nvidia.com/mig-1g.5gb.me.shared", "nvidia.com/mig-1c.3g.40gb"),
    ],
)
def test_names_of_the_plugin(resource: str):
    """NVIDIA's own names are known: an id under one that is not here is unresolved."""
    holdings = resolve(gpu(), held("a", UUID, LOST, resource=resource))
    assert only(holdings).resource == resource
    assert holdings.unresolved == {resource: 1}
    assert holdings.unresolved_holders == {container("a")}


@pytest.mark.parametrize(
    "resource",
    [
        *("nvidia.com/gpumem", "nvidia.com/gpucores", "nvidia.com/gpu.sharedX", "nvidia.com/GPU"),
        *("nvidia.com/mig-", "nvidia.com/mig-1g.5gb/x", "Xnvidia.com/gpu", "nvidia.com/gpu\n"),
        *("amd.com/nic", "gpu.intel.com/monitoring", "aliyun.com/gpu-count", "tencent.com/cpu"),
        *("volcano.sh/cpu", "smarter-devices/fuse", ""),
    ],
)
def test_foreign_resources_are_passed_over(resource: str):
    ids = (LOST, f"{UUID}_-_0", "nvidia0", "nvidia0/vgpu1", "0000:19:00.0", "card0-1", "fuse", "")
    holdings = resolve(gpu(), held("a", *ids, resource=resource))
    assert holdings.holdings == ()
    assert holdings.unresolved == {}
    assert holdings.unresolved_holders == frozenset()


def test_foreign_offers_are_passed_over():
    holdings = resolve(gpu(), offered=replicas(4) + whole("fuse", "smarter-devices/fuse"))
    assert [count.resource for count in holdings.devices[UUID, ""].slices] == ["nvidia.com/gpu"]


def test_a_renamed_resource_is_known_by_its_ids():
    offered = replicas(4, resource="nvidia.com/a100-shared")
    holdings = resolve(gpu(), held("a", f"{UUID}::1", resource="nvidia.com/a100-shared"), offered)
    assert only(holdings).compute_entitled == 1 / 4
    assert holdings.devices[UUID, ""].slices == (SliceCount("nvidia.com/a100-shared", 4, 1, 0, 0),)


def test_a_renamed_mig_resource_is_known_by_its_ids():
    """MIG UUIDs and old triples are as good as those of GPUs."""
    node = mig_gpu([mig(), mig(uuid="MIG-2", gi=2)])
    holdings = resolve(
        node, held("a", MIG, resource="x.io/small") + held("b", f"MIG-{UUID}/2/0", resource="x.io/small")
    )
    assert where(holdings) == {"a": [(UUID, MIG)], "b": [(UUID, "MIG-2")]}


def test_a_renamed_resource_without_its_device_is_not_counted():
    holdings = resolve(gpu(), held("a", LOST, resource="nvidia.com/a100-shared"))
    assert (holdings.unresolved, holdings.unresolved_holders) == ({}, frozenset())


def test_a_pattern_makes_a_name_known():
    patterns = [re.compile(r"gke\.io/.*"), re.compile(r"x\.io/gpu")]
    held_ids = held("a", "nvidia0/vgpu1", LOST, resource="gke.io/t4")
    holdings = resolve(numbered(0, 0), held_ids, [], patterns=tuple(patterns))
    assert where(holdings).keys() == {"a"}
    assert holdings.unresolved == {"gke.io/t4": 1}


def test_a_pattern_matches_the_whole_name():
    patterns = (re.compile(r"x\.io/gpu"),)
    holdings = resolve(gpu(), held("a", LOST, resource="x.io/gpu-memory"), [], patterns=patterns)
    assert holdings.unresolved == {}


def test_distinct_ids_are_unresolved_once():
    allocated = held("a", LOST) + held("b", LOST) + held("b", f"{LOST}::1", resource="nvidia.com/gpu.shared")
    holdings = resolve(gpu(), allocated)
    assert holdings.unresolved == {"nvidia.com/gpu": 1, "nvidia.com/gpu.shared": 1}
    assert holdings.unresolved_holders == {container("a"), container("b")}


def test_containers_that_hold_nothing_here_are_not_mentioned():
    nic = Allocation(container("net"), "mellanox.com/rdma", "mlx5_0")
    assert resolve(gpu(), [nic]).holdings == ()
