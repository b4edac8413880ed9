"""AMD's device plugin: which device an id means, and what its holder is due."""

from dataclasses import replace

import pytest

from exporter.model import Allocation, DeviceKey, GpuIdentity, GpuReading, Holding, OfferedDevice, SliceCount
from tests.core.attribution.build import GIB, UUID, gpu, held, memory, mig
from tests.core.sharing.build import container, only, resolve, where

AMD = "GPU-4f3a9d7be0c15826"
ADDRESS = "0000:19:00.0"
PARTITIONS = (ADDRESS, *(f"amdgpu_xcp_{number}" for number in range(21, 28)))
CPX = "amd.com/cpx_nps1"


def whole(uuid: str = AMD, bus_id: str = "00000000:19:00.0", **more: object) -> GpuReading:
    """Return a whole AMD GPU with 64 GiB."""
    identity = GpuIdentity(uuid=uuid, index=0, model="MI210", pci_bus_id=bus_id, vendor="amd")
    return gpu(identity=identity, memory=memory(GIB, 64 * GIB), **more)


def partitioned(**changes: object) -> GpuReading:
    """Return an AMD GPU that is cut into eight partitions of 24 GiB."""
    values = {
        "memory": memory(GIB, 24 * GIB),
        "profile": "cpx_nps1",
        "compute_slices": 1,
        "instance_slices": 1,
    }
    cut = tuple(mig(uuid=name, gi=place, **(values | changes)) for place, name in enumerate(PARTITIONS))
    return whole(mig_enabled=True, mig_slices=8, mig=cut)


def offers(resource: str, *ids: str) -> list[OfferedDevice]:
    """Return offered devices."""
    return [OfferedDevice(resource, device_id) for device_id in ids]


def mode(node: GpuReading, key: DeviceKey, *arguments: list) -> tuple[str, str, bool]:
    """Return mode, isolation and whether one holder at most is meant."""
    holdings = resolve(node, *arguments).devices[key]
    return holdings.sharing, holdings.isolation, holdings.exclusive


def test_a_whole_gpu_by_its_pci_address():
    """The plugin spells it as the kernel does, with four digits of the domain."""
    other = whole("GPU-00000000000000bb", "00000001:C6:00.0")
    places = where(resolve([whole(), other], held("a", ADDRESS, resource="amd.com/gpu")))
    assert places == {"a": [DeviceKey(AMD)]}
    places = where(resolve([whole(), other], held("b", "0001:c6:00.0", resource="amd.com/gpu")))
    assert places == {"b": [DeviceKey("GPU-00000000000000bb")]}


def test_all_of_a_whole_gpu():
    holding = only(resolve(whole(), held("a", ADDRESS, resource="amd.com/gpu")))
    assert holding == Holding(
        holder=container("a"),
        device=DeviceKey(AMD),
        resource="amd.com/gpu",
        slices=1,
        memory_entitled=64 * GIB,
        compute_entitled=1.0,
        sharing="exclusive",
        isolation="hard",
    )


def test_a_partition_by_its_name():
    for name in PARTITIONS:
        holding = only(resolve(partitioned(), held("a", name, resource=CPX)))
        assert holding.device == DeviceKey(AMD, name)
        assert (holding.memory_entitled, holding.compute_entitled) == (24 * GIB, 1 / 8)


def test_the_number_in_the_name_of_a_partition_may_follow_a_dot():
    for name in PARTITIONS[1:]:
        dotted = name.replace("xcp_", "xcp.")
        assert only(resolve(partitioned(), held("a", dotted, resource=CPX))).device == DeviceKey(AMD, name)


def test_an_id_of_no_known_partition_may_mean_one_without_a_name():
    node, nameless = partitioned(), f"{ADDRESS}/1"
    parts = (node.mig[0], replace(node.mig[1], uuid=nameless), *node.mig[2:])
    holdings = resolve(replace(node, mig=parts), held("a", PARTITIONS[1], resource=CPX))
    assert (holdings.unresolved, holdings.unplaced) == ({CPX: 1}, {DeviceKey(AMD, nameless)})
    holdings = resolve(replace(node, mig=parts), held("a", PARTITIONS[2], resource=CPX))
    assert (holdings.unresolved, holdings.unplaced) == ({}, frozenset())


def test_the_shares_of_all_partitions_are_the_gpu():
    allocated = [each for n, name in enumerate(PARTITIONS) for each in held(f"p{n}", name, resource=CPX)]
    holdings = resolve(partitioned(), allocated).holdings
    assert len(holdings) == 8
    assert sum(holding.compute_entitled or 0 for holding in holdings) == 1.0


def test_the_address_of_a_partitioned_gpu_is_its_first_partition():
    holdings = resolve(partitioned(), held("a", ADDRESS, resource="amd.com/gpu"))
    assert where(holdings) == {"a": [DeviceKey(AMD, ADDRESS)]}
    assert DeviceKey(AMD) not in holdings.devices


@pytest.mark.parametrize("resource", ["amd.com/gpu", CPX, "amd.com/dpx_nps2"])
def test_ids_of_unknown_devices_are_counted(resource: str):
    ids = ("0000:99:00.0", "amdgpu_xcp_4", "0", "GPU-0")
    holdings = resolve(partitioned(), held("a", *ids, resource=resource))
    assert holdings.unresolved == {resource: 4}
    assert holdings.unresolved_holders == {container("a")}
    assert holdings.holdings == ()


@pytest.mark.parametrize(
    "resource", ["amd.com/nic", "amd.com/vnic", "nvidia.com/gpu.shared", "pci/gpu", CPX + "x"]
)
def test_addresses_of_other_resources_are_not_gpus(resource: str):
    """Plugins of network cards give out PCI addresses too."""
    assert resolve(whole(), held("a", ADDRESS, resource=resource)).holdings == ()


def test_a_gpu_of_another_vendor_is_not_held():
    identity = GpuIdentity(uuid=UUID, index=0, pci_bus_id="00000000:19:00.0")
    holdings = resolve(gpu(identity=identity), held("a", ADDRESS, resource="amd.com/gpu"))
    assert holdings.unresolved == {"amd.com/gpu": 1}


def test_both_vendors_on_one_node():
    allocated = [Allocation(container("n"), "nvidia.com/gpu", f"{UUID}::1")]
    allocated += held("a", ADDRESS, resource="amd.com/gpu")
    holdings = resolve([gpu(), whole()], allocated, offers("nvidia.com/gpu", f"{UUID}::0", f"{UUID}::1"))
    assert where(holdings) == {"n": [DeviceKey(UUID)], "a": [DeviceKey(AMD)]}
    assert holdings.devices[UUID, ""].sharing == "time-slicing"
    assert holdings.devices[AMD, ""].sharing == "exclusive"


def test_modes():
    resource, key, part = "amd.com/gpu", DeviceKey(AMD), DeviceKey(AMD, "amdgpu_xcp_21")
    assert mode(whole(), key, [], offers(resource, ADDRESS)) == ("exclusive", "hard", True)
    assert mode(whole(), key, held("a", ADDRESS, resource=resource), None) == ("exclusive", "hard", True)
    assert mode(whole(), key, [], []) == ("none", "none", False)
    assert mode(whole(), key, [], None) == ("unknown", "", False)
    assert mode(whole(up=False), key, [], []) == ("unknown", "", False)
    assert mode(partitioned(), part, [], []) == ("amd-partition", "hard", True)


def test_slices_that_are_offered_and_held():
    holdings = resolve(partitioned(), held("a", PARTITIONS[1], resource=CPX), offers(CPX, *PARTITIONS))
    assert holdings.devices[AMD, PARTITIONS[1]].slices == (SliceCount(CPX, 1, 1),)
    assert holdings.devices[AMD, PARTITIONS[2]].slices == (SliceCount(CPX, 1, 0),)


def test_an_unknown_size_or_layout_leaves_the_entitlement_unknown():
    node = partitioned(memory=None, compute_slices=None)
    holding = only(resolve(node, held("a", PARTITIONS[1], resource=CPX)))
    assert (holding.memory_entitled, holding.compute_entitled) == (None, None)


def test_partitions_that_cannot_be_listed_are_not_found():
    node = whole(mig_enabled=True, mig=None)
    assert resolve(node, held("a", PARTITIONS[1], resource=CPX)).unresolved == {CPX: 1}
