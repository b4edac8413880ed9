"""Devices that one container has as a whole, and that another one holds too."""

from dataclasses import replace

import pytest

from exporter.model import DeviceKey, GpuIdentity, SliceCount
from exporter.sharing.base.view import Objections
from tests.core.attribution.build import GIB, MIG, UUID, gpu, held, memory, mig, mig_gpu, replicas, whole
from tests.core.sharing.build import OTHER_UUID, by, container, numbered, pod, pods, resolve

SHARE = ("memory_entitled", "compute_entitled", "isolation")
NOTHING_CERTAIN = (None, None, "none")
BOTH = (container("a"), container("b"))


def test_one_id_in_two_pods():
    """The kubelet has done it after restarts. Nothing says which of the two has the device."""
    objections = Objections()
    node = [gpu(), numbered(1, 1, OTHER_UUID)]
    allocated = held("a", UUID) + held("b", UUID) + held("c", OTHER_UUID)
    found = resolve(node, allocated, whole() + whole(OTHER_UUID), objections)
    assert by(found, "holder.pod", *SHARE) == {
        "a": NOTHING_CERTAIN,
        "b": NOTHING_CERTAIN,
        "c": (16 * GIB, 1.0, "hard"),
    }
    assert found.contested == {DeviceKey(UUID): BOTH}
    sharing = found.devices[DeviceKey(UUID)]
    assert (sharing.isolation, sharing.exclusive) == ("none", False)
    assert sharing.slices == (SliceCount("nvidia.com/gpu", 1, 1, 0, 0),)
    assert objections.counts == {"device_contested": 1}


def test_two_containers_of_a_pod_and_a_renamed_resource():
    allocated = held("a", UUID) + held("a", UUID, container="more", resource="example.com/gpu")
    found = resolve(gpu(), allocated)
    assert by(found, "holder.container", *SHARE) == {"main": NOTHING_CERTAIN, "more": NOTHING_CERTAIN}


def test_one_mig_device_in_two_pods():
    node = mig_gpu([mig(), mig(uuid="MIG-2", gi=2)])
    resource = "nvidia.com/mig-3g.20gb"
    allocated = [each for name, key in (("a", MIG), ("b", MIG), ("c", "MIG-2")) for each in held(name, key)]
    allocated = [each._replace(resource=resource) for each in allocated]
    found = resolve(node, allocated, whole(MIG, resource) + whole("MIG-2", resource))
    assert by(found, "holder.pod", *SHARE) == {
        "a": NOTHING_CERTAIN,
        "b": NOTHING_CERTAIN,
        "c": (5 * GIB, 3 / 7, "hard"),
    }
    assert found.contested == {DeviceKey(UUID, MIG): BOTH}


@pytest.mark.parametrize("device_id", [UUID, "nvidia0"])
def test_a_whole_gpu_and_its_parts(device_id):
    """A plugin that ignores MIG gives out the GPU, on which another one has MIG devices."""
    node = mig_gpu([mig(), mig(uuid="MIG-2", gi=2)])
    found = resolve(node, held("a", device_id) + held("b", MIG, resource="nvidia.com/mig-3g.20gb"))
    assert by(found, "holder.pod", *SHARE) == {"b": NOTHING_CERTAIN}
    assert found.contested == {DeviceKey(UUID, MIG): BOTH}


def test_one_replica_in_two_pods():
    """Its share is unknown for both; the shares of the other replicas are not touched."""
    allocated = held("a", f"{UUID}::0") + held("b", f"{UUID}::0", f"{UUID}::1") + held("c", f"{UUID}::2")
    found = resolve(gpu(), allocated, replicas(4))
    assert by(found, "holder.pod", *SHARE) == {
        "a": NOTHING_CERTAIN,
        "b": NOTHING_CERTAIN,
        "c": (4 * GIB, 0.25, "none"),
    }
    assert found.contested == {DeviceKey(UUID): BOTH}


def test_a_whole_gpu_and_a_share_by_another_system():
    annotations = {"hami.io/vgpu-devices-allocated": f"{UUID},NVIDIA,4096,30:;"}
    allocated = held("a", UUID, resource="example.com/gpu") + held("b", f"{UUID}-3")
    found = resolve(gpu(), allocated, pods=pods(pod("a"), pod("b", annotations)))
    assert by(found, "holder.pod", *SHARE) == {"a": NOTHING_CERTAIN, "b": (None, None, "soft")}


def test_a_whole_amd_gpu_in_two_pods():
    identity = GpuIdentity(uuid="GPU-1", index=0, pci_bus_id="00000000:19:00.0", vendor="amd")
    node = gpu(identity=identity, uuid="GPU-1", memory=memory(0, 64 * GIB))
    allocated = [each for name in "ab" for each in held(name, "0000:19:00.0", resource="amd.com/gpu")]
    assert set(by(resolve(node, allocated), "holder.pod", *SHARE).values()) == {NOTHING_CERTAIN}


def test_whole_cards_by_annotation():
    """Two pods whose annotations name the same whole card."""
    resource = "elasticgpu.io/gpu-core"
    notes = {"elasticgpu.io/assumed": "true", "elasticgpu.io/container-main": "0"}
    ids = [f"0-{place:02d}" for place in range(100)]
    allocated = held("a", *ids, resource=resource) + held("b", *ids, resource=resource)
    found = resolve(gpu(), allocated, pods=pods(pod("a", notes), pod("b", notes)))
    assert set(by(found, "holder.pod", *SHARE).values()) == {NOTHING_CERTAIN}


def test_shares_that_a_system_gives_out_on_purpose_are_not_contested():
    allocated = held("a", f"{UUID}::0") + held("b", f"{UUID}::1")
    found = resolve(gpu(), allocated, replicas(2))
    assert not found.contested
    assert {row.compute_entitled for row in found.holdings} == {0.5}
    assert not resolve(replace(gpu(), up=False), held("a", UUID), whole()).contested
