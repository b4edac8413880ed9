"""Contradictory answers of a driver: no process, or no compute, on a device that is in use."""

import pytest

from tests.core.attribution.build import (
    GIB,
    MIG,
    UUID,
    gpu,
    held,
    join,
    mig,
    mig_gpu,
    process,
    replicas,
    row,
    whole,
    workloads,
)

SHARED = held("a", f"{UUID}::0") + held("b", f"{UUID}::1")


@pytest.mark.parametrize("used", [2 * GIB, 15 * GIB])
def test_an_empty_list_with_memory_in_use_proves_no_absence(used: int):
    """A driver needs some memory for itself; more is that of a process."""
    found = join(gpu([], {}, used=used, utilization_percent=0), SHARED, replicas(4))
    for pod in "ab":
        use = row(found, pod)
        assert (use.memory_used, use.processes, use.compute_used) == (None, None, None)
    assert found.gpus[0].unattributed_memory == used
    assert not found.proven


@pytest.mark.parametrize("used", [0, GIB // 2, GIB + GIB // 2])
def test_an_empty_list_with_only_the_memory_of_the_driver_proves_absence(used: int):
    found = join(gpu([], {}, used=used, utilization_percent=0), SHARED, replicas(4))
    for pod in "ab":
        use = row(found, pod)
        assert (use.memory_used, use.processes, use.compute_used) == (0, 0, 0.0)


def test_the_memory_that_a_driver_needs_grows_with_the_device():
    for used, absent in ((GIB, 0), (2 * GIB, None)):
        found = join(mig_gpu([mig([], used=used)]), held("a", MIG), whole(MIG))
        assert (row(found, "a").memory_used, row(found, "a").processes) == (absent, absent)


@pytest.mark.parametrize("samples", [{}, {1: 0, 2: 0}])
def test_empty_samples_of_a_busy_gpu_prove_no_idleness(samples: dict[int, int]):
    busy = gpu([process(1), process(2)], samples, utilization_percent=80)
    found = join(busy, SHARED, replicas(4), workloads({1: "a", 2: "b"}))
    for pod in "ab":
        use = row(found, pod)
        assert (use.memory_used, use.processes, use.compute_used) == (GIB, 1, None)


def test_empty_samples_leave_an_exclusive_gpu_to_its_holder():
    """Rule 6."""
    busy = gpu([process(1)], {}, utilization_percent=80)
    use = row(join(busy, held("a", UUID), whole(), workloads({1: "a"})), "a")
    assert (use.compute_used, use.compute_source) == (0.8, "device")


@pytest.mark.parametrize(
    ("samples", "percent"), [({}, 5), ({1: 0}, 0), ({1: 0, 9: 70}, 80), ({1: 0}, None), ({1: 0, 2: 3}, 80)]
)
def test_samples_that_agree_with_the_gpu_are_believed(samples: dict[int, int], percent: int | None):
    found = join(
        gpu([process(1), process(2)], samples, utilization_percent=percent),
        SHARED,
        replicas(4),
        workloads({1: "a", 2: "b"}, outside=(9,)),
    )
    assert row(found, "a").compute_used == 0.0
    assert row(found, "b").compute_used == samples.get(2, 0) / 100
