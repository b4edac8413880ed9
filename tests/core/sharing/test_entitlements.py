"""What a holder is entitled to."""

import pytest

from exporter.model import GpuIdentity
from tests.core.attribution.build import GIB, MIG, UUID, gpu, held, memory, mig, mig_gpu, replicas, whole
from tests.core.sharing.build import only, resolve

MIB = 1 << 20


def entitled(node, ids, offered) -> tuple[int | None, float | None]:
    """Return bytes and share of compute of a pod that holds these ids."""
    holding = only(resolve(node, held("a", *ids), offered))
    return holding.memory_entitled, holding.compute_entitled


def slices(count, device=UUID):
    """Return the first replicas of a device."""
    return [f"{device}::{n}" for n in range(count)]


def test_an_exclusive_gpu_is_the_whole():
    assert entitled(gpu(), [UUID], whole()) == (16 * GIB, 1)
    assert entitled(gpu(), [UUID], None) == (16 * GIB, 1)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 10])
def test_time_slices_are_shares(count: int):
    memory_entitled, compute = entitled(gpu(), slices(count), replicas(10))
    assert memory_entitled == 16 * GIB * count // 10
    assert compute == pytest.approx(count / 10)


def test_all_replicas_are_the_whole():
    """Rounding takes nothing from a container that holds every replica of an odd number."""
    assert entitled(gpu(), slices(3), replicas(3)) == (16 * GIB, 1)


@pytest.mark.parametrize(
    ("total", "n", "k", "expected"),
    [
        (15360 * MIB, 10, 1, 1536 * MIB),
        (23028 * MIB, 4, 3, 3 * 5757 * MIB),
        (16 * GIB, 3, 1, 5461 * MIB),
        (16 * GIB, 3, 3, 3 * 5461 * MIB),
        (16 * GIB + 5, 7, 2, 2 * 2340 * MIB),
    ],
)
def test_mps_limits_are_whole_mebibytes(total: int, n: int, k: int, expected: int):
    """MPS limits a client to total / n in whole MiB, so that k replicas are k times that."""
    node = gpu(memory=memory(0, total), compute_mode="exclusive_process")
    assert entitled(node, slices(k), replicas(n)) == (expected, k / n)


@pytest.mark.parametrize(
    ("slots", "whole_slots", "share"), [(3, 7, 3 / 7), (1, 7, 1 / 7), (2, 4, 1 / 2), (1, 4, 1 / 4)]
)
def test_a_mig_device_is_its_slices(slots: int, whole_slots: int, share: float):
    """Compute is counted in slices of the physical GPU: seven on most models, four on an A30."""
    node = mig_gpu([mig(slices=slots)]) if whole_slots == 7 else a30(mig(slices=slots))
    assert entitled(node, [MIG], whole(MIG)) == (5 * GIB, pytest.approx(share))


def a30(*instances):
    """Return a GPU of four slices."""
    return gpu(None, mig_enabled=True, mig_slices=4, mig=instances, utilization_percent=None)


def test_a_replica_of_a_mig_device_is_a_share_of_it():
    """Holding k of n replicas of a MIG device is k/n of its memory and of its slices."""
    assert entitled(a30(mig(slices=2)), slices(1, MIG), replicas(3, MIG)) == (
        5 * GIB // 3,
        pytest.approx(2 / 12),
    )


def test_compute_instances_that_share_memory_are_not_entitled_to_memory():
    assert entitled(mig_gpu([mig(memory_shared=True)]), [MIG], whole(MIG)) == (None, pytest.approx(3 / 7))


@pytest.mark.parametrize("lacking", ["compute_slices", "memory"])
def test_an_unknown_figure_costs_only_its_own_entitlement(lacking: str):
    memory_entitled, compute = entitled(mig_gpu([mig(**{lacking: None})]), [MIG], whole(MIG))
    assert (memory_entitled is None) == (lacking == "memory")
    assert (compute is None) == (lacking == "compute_slices")


def test_a_gpu_without_a_number_of_slices():
    node = gpu(None, mig_enabled=True, mig_slices=None, mig=(mig(),))
    assert entitled(node, [MIG], whole(MIG)) == (5 * GIB, None)


def test_a_gpu_whose_memory_cannot_be_read():
    assert entitled(gpu(memory=None), [UUID], whole()) == (None, 1)
    assert entitled(gpu(memory=None), slices(1), replicas(4)) == (None, 1 / 4)


@pytest.mark.parametrize("node", [gpu(), gpu(compute_mode="exclusive_process")])
def test_shares_of_an_unknown_number_are_unknown(node):
    """An old kubelet does not report the number of replicas."""
    assert entitled(node, slices(1), None) == (None, None)


@pytest.mark.parametrize("offered", [[], replicas(1), replicas(4, resource="nvidia.com/gpu.shared")])
def test_fewer_offered_than_held(offered):
    assert entitled(gpu(), slices(2), offered) == (None, None)


@pytest.mark.parametrize(
    ("ids", "offered"),
    [
        pytest.param([f"{UUID}::0", f"{UUID}::2", f"{UUID}::3"], replicas(2), id="fewer replicas"),
        pytest.param([f"{UUID}::0", f"{UUID}::2"], whole(), id="no longer shared"),
        pytest.param([UUID], replicas(4), id="shared since"),
    ],
)
def test_ids_of_an_earlier_configuration_have_unknown_shares(ids, offered):
    allocated = [each for place, each in enumerate(ids) for each in held(f"pod-{place}", each)]
    for holding in resolve(gpu(), allocated, offered).holdings:
        assert (holding.memory_entitled, holding.compute_entitled) == (None, None)


def test_a_reconfigured_device_does_not_affect_another():
    other = gpu(uuid="GPU-2", identity=GpuIdentity(uuid="GPU-2", index=1, minor=1))
    allocated = held("old", f"{UUID}::3") + held("new", "GPU-2::1")
    holdings = resolve([gpu(), other], allocated, replicas(2) + replicas(2, "GPU-2")).holdings
    assert {holding.holder.pod: holding.compute_entitled for holding in holdings} == {
        "old": None,
        "new": 1 / 2,
    }


def test_several_devices_of_one_container():
    node = mig_gpu([mig(slices=1), mig(uuid="MIG-2", gi=2, slices=2)])
    holdings = resolve(node, held("a", MIG, "MIG-2"), whole(MIG) + whole("MIG-2")).holdings
    assert [holding.compute_entitled for holding in holdings] == [pytest.approx(1 / 7), pytest.approx(2 / 7)]


def test_two_containers_of_a_pod():
    allocated = held("a", f"{UUID}::0") + held("a", f"{UUID}::1", f"{UUID}::2", container="side")
    holdings = resolve(gpu(), allocated, replicas(4)).holdings
    assert {(holding.holder.container, holding.slices, holding.compute_entitled) for holding in holdings} == {
        ("main", 1, 1 / 4),
        ("side", 2, 1 / 2),
    }
