"""Claims of DRA drivers that are not known here: unresolved, and doubtful as far as they may be for GPUs."""

import re

import pytest

from exporter.model import ClaimedDevice, DeviceKey
from exporter.sharing.dra import NVIDIA_DRIVER
from tests.core.attribution.build import UUID, gpu, held, replicas, whole
from tests.core.sharing.build import OTHER_UUID, container, numbered, resolve

BOTH = {DeviceKey(UUID), DeviceKey(OTHER_UUID)}
PCI = "00000000:3B:00.0"


def node() -> list:
    return [gpu(), numbered(1, 1)]


def claim(driver, device, *cdi, name="train", share="") -> ClaimedDevice:
    return ClaimedDevice(
        holder=container(name),
        driver=driver,
        pool="node",
        device=device,
        claim_namespace="ml",
        claim=f"{name}-claim",
        cdi=cdi,
        share_id=share,
    )


@pytest.mark.parametrize(
    ("driver", "device", "cdi"),
    [
        ("gpu.example.com", "gpu-0", ()),
        ("dra.example.com", "unit-7", ()),
        ("dra.example.com", "unit-7", ("example.com/gpu=unit-7",)),
        # The names of the GPUs' own CDI device outweigh that of the driver.
        ("net.example.com", "unit-7", ("k8s.net.example.com/gpu=unit-7",)),
        # Of another device of the container.
        ("dra.example.com", "unit-7", ("example.com/nic=eth0",)),
        ("vgpu.nvidia.com", "a", ()),
        ("dra.example.net", "a", ()),
    ],
)
def test_a_claim_that_may_be_for_a_gpu_is_unresolved_and_makes_gpus_doubtful(driver, device, cdi):
    found = resolve(node(), claims=[claim(driver, device, *cdi)])
    assert found.unresolved == {driver: 1}
    assert found.unplaced == BOTH


@pytest.mark.parametrize(
    ("driver", "device", "cdi"),
    [
        ("dra.net", "eth1", ()),
        ("rdma.example.com", "mlx5-1", ()),
        ("dra.cpu", "cpudev003", ("dra.k8s.io/cpu=cpudev003",)),
        ("sriovnetwork.k8snetworkplumbingwg.io", "0000-08-00-1", ()),
        ("dra.example.com", "a", ("example.com/nic=a",)),
        ("dra.example.com", "cpu-3", ()),
        ("compute-domain.nvidia.com", "channel-0", ("k8s.compute-domain.nvidia.com/claim=x-channel-0",)),
        ("qat.intel.com", "qatvf-0000-aa-00-1", ("intel.com/qat=qatvf-0000-aa-00-1",)),
        ("tpu.google.com", "0", ()),
    ],
)
def test_a_claim_for_another_kind_of_device_costs_nothing(driver, device, cdi):
    found = resolve(node(), held("a", f"{UUID}::0"), replicas(2), claims=[claim(driver, device, *cdi)])
    assert (found.unresolved, found.unplaced) == ({}, frozenset())


@pytest.mark.parametrize(
    ("driver", "device", "cdi", "doubted"),
    [
        ("dra.example.com", "unit", (f"nvidia.com/gpu={UUID}",), BOTH),
        ("dra.example.com", UUID.lower(), (), {DeviceKey(UUID)}),
        ("dra.example.com", f"{UUID}-0", (), {DeviceKey(UUID)}),
        ("dra.example.com", "0000-3b-00-0", (), set()),
        ("gpu.amd.com.example.org", "a", (), BOTH),
        ("vgpu.amd.com", "a", (), set()),
        ("gpu.huawei.com", "npu-gpu", (), set()),
    ],
)
def test_a_claim_means_no_more_devices_than_its_names_allow(driver, device, cdi, doubted):
    found = resolve(node(), claims=[claim(driver, device, *cdi)])
    assert found.unresolved == {driver: 1}
    assert found.unplaced == doubted


def test_devices_that_a_known_system_proves_elsewhere_are_not_doubtful():
    """One GPU is held whole by the device plugin, another by a claim of a known driver."""
    third = numbered(2, 2, "GPU-00000000-0000-0000-0000-0000000000cc")
    claims = [claim("dra.example.com", "unit"), claim(NVIDIA_DRIVER, "gpu-1", name="b")]
    found = resolve([*node(), third], held("a", UUID), whole(), claims=claims)
    assert found.unplaced == {DeviceKey(third.identity.uuid)}


def test_an_ignored_driver_costs_nothing():
    claims = [claim("dra.example.com", "unit"), claim("other.example.com", "unit")]
    found = resolve(node(), claims=claims, ignored_drivers=(re.compile(r"dra\.example\.com"),))
    assert found.unresolved == {"other.example.com": 1}
    assert found.unplaced == BOTH


def test_shares_of_a_device_count_one_by_one_and_a_claim_of_two_containers_once():
    shared = claim("dra.example.com", "unit")
    other = claim("dra.example.com", "unit", name="eval")
    shares = [claim("dra.example.com", "cut", share=share) for share in ("a", "b")]
    found = resolve(node(), claims=[shared, other, *shares])
    assert found.unresolved == {"dra.example.com": 3}
