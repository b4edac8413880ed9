"""Which device an id of the kubelet means on a given node."""

import pytest

from exporter.model import DeviceKey, GpuIdentity, GpuReading, OfferedDevice, SliceCount
from tests.core.attribution.build import MIG, UUID, gpu, held, mig, mig_gpu
from tests.core.sharing.build import OTHER_UUID, container, numbered, only, resolve, where

LEGACY = f"MIG-{UUID}/1/0"


def unresolved(gpus, *ids):
    """Return whether these ids, held by one pod, mean no device at all."""
    holdings = resolve(gpus, held("a", *ids))
    assert bool(holdings.unresolved) == (container("a") in holdings.unresolved_holders)
    return holdings.unresolved == {"nvidia.com/gpu": len(ids)} and not holdings.holdings


def test_a_whole_gpu_by_its_uuid():
    assert where(resolve(gpu(), held("a", UUID))) == {"a": [DeviceKey(UUID)]}
    assert where(resolve(gpu(), held("a", f"{UUID}::3"))) == {"a": [DeviceKey(UUID)]}


def test_a_mig_device_by_its_uuid():
    """A MIG id is the MIG device of its parent."""
    node = mig_gpu([mig()])
    assert where(resolve(node, held("a", MIG))) == {"a": [DeviceKey(UUID, MIG)]}
    assert where(resolve(node, held("a", f"{MIG}::1"))) == {"a": [DeviceKey(UUID, MIG)]}


def test_an_old_id_for_a_mig_device_with_a_new_name():
    node = mig_gpu([mig(gi=1, ci=0), mig(gi=1, ci=1, uuid="MIG-1"), mig(gi=2, ci=0, uuid="MIG-2")])
    assert where(resolve(node, held("a", LEGACY))) == {"a": [DeviceKey(UUID, MIG)]}
    assert where(resolve(node, held("a", f"MIG-{UUID}/1/1::0"))) == {"a": [DeviceKey(UUID, "MIG-1")]}
    assert where(resolve(node, held("a", f"MIG-{UUID}/2/0"))) == {"a": [DeviceKey(UUID, "MIG-2")]}
    assert unresolved(node, f"MIG-{UUID}/2/1", f"MIG-{OTHER_UUID}/1/0", f"MIG-{UUID}/3/0")


def test_an_old_id_for_a_mig_device_with_an_old_name():
    """A driver that still names its devices by triples is found by them, replicas included."""
    node = mig_gpu([mig(uuid=LEGACY), mig(uuid=f"MIG-{UUID}/2/0", gi=2)])
    assert where(resolve(node, held("a", LEGACY))) == {"a": [DeviceKey(UUID, LEGACY)]}
    assert where(resolve(node, held("a", f"{LEGACY}::5"))) == {"a": [DeviceKey(UUID, LEGACY)]}
    # A new name does not follow from an old one.
    assert unresolved(node, MIG)


def test_gke_counts_by_minor():
    node = [numbered(0, 1, UUID), numbered(1, 0, OTHER_UUID)]
    holdings = resolve(node, held("a", "nvidia0") + held("b", "nvidia1/vgpu2"))
    assert where(holdings) == {"a": [DeviceKey(OTHER_UUID)], "b": [DeviceKey(UUID)]}
    assert unresolved(node, "nvidia2", "nvidia0/gi1")


def test_a_gpu_without_a_minor_has_no_gke_name():
    """An unknown minor matches no number."""
    assert unresolved(numbered(0, None), "nvidia0")


def test_an_id_that_fits_two_gpus_is_unresolved():
    assert unresolved([numbered(0, 0, UUID), numbered(1, 0, OTHER_UUID)], "nvidia0")


def test_gke_names_a_gpu_instance():
    node = mig_gpu([mig(gi=1), mig(gi=2, uuid="MIG-2"), mig(gi=2, ci=1, uuid="MIG-3")])
    assert where(resolve(node, held("a", "nvidia0/gi1"))) == {"a": [DeviceKey(UUID, MIG)]}
    assert where(resolve(node, held("a", "nvidia0/gi1/vgpu0"))) == {"a": [DeviceKey(UUID, MIG)]}
    assert unresolved(node, "nvidia0/gi2", "nvidia0/gi3", "nvidia1/gi1")


def test_a_gpu_in_mig_mode_cannot_be_held_as_a_whole():
    node = mig_gpu([mig()])
    assert unresolved(node, UUID, f"{UUID}::0", "nvidia0", "nvidia0/vgpu1")
    assert DeviceKey(UUID) not in resolve(node).devices


@pytest.mark.parametrize("device_id", [UUID, f"{UUID}::0", UUID.removeprefix("GPU-"), "nvidia0"])
def test_a_whole_gpu_id_in_mig_mode_leaves_the_holders_of_mig_devices_unknown(device_id):
    """A plugin that leaves MIG alone gives it out whole: how many hold its MIG devices is not known then."""
    other = numbered(1, 1, OTHER_UUID)
    holdings = resolve([mig_gpu([mig()]), other], held("a", device_id))
    assert holdings.unplaced == {DeviceKey(UUID, MIG)}
    assert resolve([mig_gpu([mig()]), other], held("a", "GPU-elsewhere")).unplaced == frozenset()


def test_mig_devices_that_cannot_be_listed_are_unresolved():
    assert unresolved(blind(), MIG, UUID)


def blind() -> GpuReading:
    """Return a GPU in MIG mode whose devices the driver does not list."""
    return gpu(None, mig_enabled=True, mig=None)


def test_a_gpu_of_unknown_mig_mode_is_whole():
    assert where(resolve(gpu(mig_enabled=None), held("a", UUID))) == {"a": [DeviceKey(UUID)]}


def test_ids_of_other_systems_are_not_guessed():
    assert unresolved(gpu(), f"{UUID}-x", f"{UUID}_-_0", f"{UUID}::8:1", f"{UUID}::", "ALL", "0000:07:00.0")


BARE = UUID.removeprefix("GPU-")


@pytest.mark.parametrize("uuid", [UUID, BARE])
@pytest.mark.parametrize("device_id", [UUID, BARE, "tegra", "all"])
def test_a_uuid_may_lack_its_prefix(uuid, device_id):
    """NVML on Jetson leaves the prefix out, and so do the ids that come from there."""
    node = [numbered(0, 0, uuid), numbered(1, 1, OTHER_UUID)] if device_id in (UUID, BARE) else gpu(uuid=uuid)
    assert where(resolve(node, held("a", device_id))) == {"a": [DeviceKey(uuid)]}
    assert where(resolve(node, held("a", f"{device_id}::3"))) == {"a": [DeviceKey(uuid)]}


@pytest.mark.parametrize("name", ["tegra", "all"])
def test_the_name_of_the_only_gpu(name):
    """The plugin gives it out on Jetson and in WSL; a GPU of another vendor does not count."""
    offered = [OfferedDevice("nvidia.com/gpu", name)]
    amd = gpu(identity=GpuIdentity(uuid="GPU-1", index=1, vendor="amd"), uuid="GPU-1")
    found = resolve([gpu(), amd], held("a", name), offered)
    row = only(found)
    assert (row.device, row.slices, row.compute_entitled) == (DeviceKey(UUID), 1, 1.0)
    assert (row.sharing, row.isolation) == ("exclusive", "hard")
    assert found.devices[DeviceKey(UUID)].slices == (SliceCount("nvidia.com/gpu", 1, 1, 0, 0),)


@pytest.mark.parametrize("name", ["tegra", "all"])
def test_replicas_of_the_only_gpu(name):
    offered = [OfferedDevice("nvidia.com/gpu.shared", f"{name}::{place}") for place in range(4)]
    ids = held("a", f"{name}::1", f"{name}::3", resource="nvidia.com/gpu.shared")
    found = resolve(gpu(), ids, offered)
    row = only(found)
    assert (row.slices, row.compute_entitled) == (2, 0.5)
    assert row.sharing == "time-slicing"


@pytest.mark.parametrize("device_id", ["tegra", "all::1"])
@pytest.mark.parametrize("second", ["whole", "mig"])
def test_that_name_means_nothing_certain_beside_another_gpu(device_id, second):
    """Also where one of the two is partitioned."""
    other = numbered(1, 1, OTHER_UUID)
    node = [gpu() if second == "whole" else mig_gpu([mig()]), other]
    assert unresolved(node, device_id)
    parts = {DeviceKey(UUID)} if second == "whole" else {DeviceKey(UUID, MIG)}
    assert resolve(node, held("a", device_id)).unplaced == parts | {DeviceKey(OTHER_UUID)}


def test_that_name_for_a_partitioned_gpu_means_its_parts():
    assert unresolved(mig_gpu([mig()]), "tegra")
    assert resolve(mig_gpu([mig()]), held("a", "tegra")).unplaced == {DeviceKey(UUID, MIG)}


def test_that_name_of_another_resource_means_no_gpu():
    found = resolve(gpu(), held("a", "all", resource="gpu.intel.com/i915_monitoring"))
    assert not found.holdings
    assert not found.unresolved
