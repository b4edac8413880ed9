"""What clusters of more than one sharing system, and of old kubelets, have to be shown as."""

import pytest

from exporter.model import Allocation, GpuIdentity, OfferedDevice
from tests.core.attribution.build import gpu
from tests.core.sharing.build import OTHER_UUID, container, numbered, pod, pods, resolve, rows

UUID = "GPU-a68d8362-b4ac-17f8-b19a-7cd116a45ee1"
WHOLE, MEMORY = "nvidia.com/gpu", "aliyun.com/gpu-mem"


def had(name: str, resource: str, *ids: str) -> list[Allocation]:
    """Return ids of a pod's container."""
    return [Allocation(container(name), resource, device_id) for device_id in ids]


@pytest.mark.parametrize(
    ("resource", "mark"), [(MEMORY, "-_-"), ("nvidia.com/gpu-5gb", "::5::")], ids=["gpushare", "nos"]
)
def test_a_whole_gpu_stays_exclusive_if_another_plugin_offers_parts_of_it(resource, mark):
    device = gpu(identity=GpuIdentity(uuid=UUID, index=0, minor=0, model="T4"), uuid=UUID)
    other = numbered(1, 1)
    offers = [OfferedDevice(resource, f"{each}{mark}{n}") for each in (UUID, OTHER_UUID) for n in (1, 2)]
    offers += [OfferedDevice(WHOLE, each) for each in (UUID, OTHER_UUID)]
    held = resolve([device, other], had("whole", WHOLE, UUID), offers, pods=pods(pod("whole"))).holdings
    assert [(holding.sharing, holding.isolation) for holding in held] == [("exclusive", "hard")]
    assert held[0].compute_entitled == 1.0
    assert held[0].memory_entitled == device.memory.total


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize(
    ("resource", "held_id"), [(MEMORY, f"{UUID}-_-3"), (WHOLE, UUID), ("tencent.com/vcuda-core", "c-1")]
)
def test_a_finished_pod_holds_nothing(phase, resource, held_id):
    """Kubelets before 1.34 list its ids until it is deleted."""
    known = pods(pod("done", phase=phase), pod("live"))
    holdings = resolve(
        [numbered(0, 0, UUID), numbered(1, 1)], had("done", resource, held_id), None, pods=known
    )
    assert (holdings.holdings, holdings.unresolved, holdings.unresolved_holders) == ((), {}, frozenset())


def test_a_pod_that_runs_again_under_the_name_of_a_finished_one_holds_its_ids():
    """So it is with the pods of a stateful set."""
    known = pods(pod("a", phase="Failed", uid="old"), pod("a", uid="new"))
    holdings = resolve([numbered(0, 0, UUID)], had("a", WHOLE, UUID), None, pods=known)
    assert rows(holdings, "holder") == [container("a")]


def test_ids_of_pods_with_unknown_objects_are_held():
    holdings = resolve([numbered(0, 0, UUID)], had("a", WHOLE, UUID), None)
    assert rows(holdings, "holder") == [container("a")]


def test_slices_of_nos_stay_its_own_on_a_gpu_of_nvshare():
    both = [
        *had("turns", "nvshare.com/gpu", f"{UUID}__1"),
        *had("slice", "nvidia.com/gpu-5gb", f"{UUID}::5::1"),
    ]
    held = {each.holder.pod: each for each in resolve(numbered(0, 0, UUID), both, None).holdings}
    assert {name: each.sharing for name, each in held.items()} == {"turns": "nvshare", "slice": "nos"}
    assert held["slice"].memory_entitled == 5 << 30
