"""The plugin of an id: seven plugins may use one resource, and differ in the spelling of ids."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.sharing.base import Meaning
from exporter.sharing.base.view import View
from exporter.sharing.nvidia_plugin import Nvidia
from tests.core.attribution.build import MIG, UUID, held, mig, mig_gpu
from tests.core.sharing.build import allocations, numbered, resolve, rows

BARE = UUID.removeprefix("GPU-")
CUT = "GPU-00000000-0000-0000-0000-0000000000cc"
GPU = "nvidia.com/gpu"
MODES = {"exclusive", "time-slicing", "mps", "mig", "mig-time-slicing", "unknown"}

OURS = [
    pytest.param(GPU, UUID, UUID, False, id="a whole GPU"),
    pytest.param(GPU, BARE, UUID, False, id="a whole GPU without its prefix"),
    pytest.param(GPU, MIG, MIG, False, id="a MIG device"),
    pytest.param("nvidia.com/mig-3g.5gb", f"MIG-{CUT}/1/0", MIG, False, id="a MIG device of an old driver"),
    pytest.param(GPU, f"{UUID}::3", UUID, True, id="a replica"),
    pytest.param("nvidia.com/gpu.shared", f"{UUID}::0", UUID, True, id="a renamed replica"),
    pytest.param(GPU, f"{MIG}::1", MIG, True, id="a replica of a MIG device"),
    pytest.param(GPU, f"MIG-{CUT}/1/0::1", MIG, True, id="a replica of a MIG device of an old driver"),
    pytest.param(GPU, "nvidia0", UUID, False, id="GKE"),
    pytest.param(GPU, "nvidia0/vgpu2", UUID, True, id="GKE, shared"),
    pytest.param(GPU, "nvidia1/gi1", MIG, False, id="GKE, MIG"),
    pytest.param(GPU, "nvidia1/gi1/vgpu0", MIG, True, id="GKE, MIG, shared"),
]

# Under the resource that the system has by default, and under NVIDIA's, which it can be configured to use.
OTHERS = [
    pytest.param("nvidia.com/gpu", f"{UUID}-3", id="HAMi"),
    pytest.param("volcano.sh/vgpu-number", f"{UUID}-3", id="volcano-vgpu"),
    pytest.param("aliyun.com/gpu-mem", f"{UUID}_-_3", id="gpushare"),
    pytest.param("nvshare.com/gpu", f"{UUID}__1", id="nvshare"),
    pytest.param("nvidia.com/gpu-10gb", f"{UUID}::10::3", id="nos"),
    pytest.param("tencent.com/vcuda-core", "tencent.com/vcuda-core-17", id="gpu-manager, cores"),
    pytest.param(
        "tencent.com/vcuda-memory", "tencent.com/vcuda-memory-268435456-2", id="gpu-manager, memory"
    ),
    pytest.param("volcano.sh/gpu-memory", "0-17", id="Volcano gpushare"),
    pytest.param("elasticgpu.io/gpu-core", "0-07", id="elastic-gpu"),
    pytest.param("amd.com/gpu", "0000:19:00.0", id="AMD"),
    pytest.param("amd.com/cpx_nps4", "amdgpu_xcp_4", id="AMD, a partition"),
    pytest.param("gpu.intel.com/i915", "card0-4", id="Intel"),
    pytest.param("nvidia.com/GA102GL_A10", "0000:3b:00.0", id="KubeVirt, passed through"),
    pytest.param("nvidia.com/NVIDIA_A40-12Q", "a297db4a-f4c2-11e6-90f6-d3b88d6c9525", id="KubeVirt, a vGPU"),
    pytest.param("gpu.intel.com/monitoring", "all", id="all"),
]


@pytest.fixture(name="view")
def _view() -> View:
    """Return a node with a whole GPU and one with MIG devices."""
    return View((numbered(0, 0, UUID), _cut()), allocations())


def _cut():
    identity = numbered(1, 1, CUT).identity
    return mig_gpu([mig()], identity=identity)


@pytest.mark.parametrize(("resource", "device_id", "device", "replica"), OURS)
def test_ids_of_these_plugins_name_their_device(view, resource, device_id, device, replica):
    meaning = Nvidia(view).meaning(resource, device_id)
    assert meaning is not None
    assert meaning.device is view.inventory.by_uuid(device)
    assert (meaning.replica, meaning.nominal) == (replica, False)


@pytest.mark.parametrize(("resource", "device_id"), OTHERS)
def test_ids_of_other_systems_are_left_to_them(view, resource, device_id):
    """Under its own resource another system's id means nothing; under NVIDIA's it is unresolved."""
    nvidia = Nvidia(view)
    assert nvidia.meaning(GPU, device_id) == Meaning()
    if resource != GPU:
        assert nvidia.meaning(resource, device_id) is None


@pytest.mark.parametrize("device_id", [pytest.param(case.values[1], id=case.id) for case in OTHERS])
def test_ids_of_other_systems_are_not_taken_for_gpus(device_id):
    holdings = resolve([numbered(0, 0, UUID), _cut()], held("a", device_id), None)
    assert not set(rows(holdings, "sharing")) & MODES
    assert holdings.holdings or holdings.unresolved == {GPU: 1}


@given(prefix=st.sampled_from([UUID, MIG, BARE]), tail=st.text(min_size=1, max_size=12))
def test_only_a_number_behind_the_mark_is_a_replica(prefix, tail):
    view = View((numbered(0, 0, UUID), _cut()), allocations())
    number = tail.removeprefix("::")
    meaning = Nvidia(view).meaning(GPU, prefix + tail)
    assert meaning is not None
    digits = tail.startswith("::") and number != "" and all(each in "0123456789" for each in number)
    assert (meaning.device is not None) == digits
