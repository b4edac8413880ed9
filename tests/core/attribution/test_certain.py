"""Limits of evidence: missing MIG devices, shared parts, holdings of an earlier poll."""

from dataclasses import replace

import pytest

from exporter.attribution import HoldingsIndex, attribute
from exporter.model import (
    Allocations,
    ContainerRef,
    DeviceKey,
    DeviceSharing,
    GpuIdentity,
    Holding,
    Holdings,
    PodIdentity,
    ProcessPlace,
    Workloads,
)
from exporter.sharing import resolve_holdings
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
    row,
    whole,
    workloads,
)

OTHER = "MIG-00000000-0000-0000-0000-00000000000c"
PARTS = "nvidia.com/mig-3g.5gb"
BOTH = held("a", MIG, resource=PARTS) + held("b", OTHER, resource=PARTS)
OFFERED = whole(MIG, PARTS) + whole(OTHER, PARTS)


def unknown_parts(**changes):
    """Return a GPU of which two MIG devices are held, but not how it is cut."""
    return gpu(None, **{"mig_enabled": None, "mig": None} | changes)


@pytest.mark.parametrize(
    "device",
    [
        unknown_parts(),
        unknown_parts(up=False, memory=None, utilization_percent=None),
        mig_gpu([], mig_complete=False),
        mig_gpu([mig()], mig_complete=False),
    ],
    ids=["unknown", "lost", "no slot known", "one slot known"],
)
def test_a_gpu_with_unknown_mig_devices_has_unknown_holders(device):
    """Unresolved ids may be those of its MIG devices."""
    [found] = join(device, BOTH, OFFERED).gpus
    assert (found.holders, found.memory_entitled, found.slices) == (None, None, ())
    assert found.sharing != "none"


def test_missing_mig_devices_matter_only_while_an_id_leads_nowhere():
    [found] = join(mig_gpu([mig()], mig_complete=False), held("a", MIG), whole(MIG)).gpus
    assert (found.holders, found.memory_entitled) == (1, 5 * GIB)
    [found] = join(mig_gpu([mig()]), BOTH, OFFERED).gpus
    assert (found.holders, found.memory_entitled) == (1, 5 * GIB)


def test_memory_of_a_gpu_instance_without_processes_proves_no_absence():
    """More is used than a driver needs, so a process is missing in the lists."""
    parts = [
        mig([], used=4 * GIB, uuid=uuid, ci=ci, memory_shared=True) for ci, uuid in enumerate((MIG, OTHER))
    ]
    found = join(mig_gpu(parts), BOTH, OFFERED)
    for pod in "ab":
        assert (row(found, pod).memory_used, row(found, pod).processes) == (None, None)


@pytest.mark.parametrize(
    ("theirs", "complete"),
    [([process(1)], True), (None, True), ([], False)],
    ids=["listed", "no list", "incomplete"],
)
def test_memory_of_a_gpu_instance_may_be_that_of_another_compute_instance(theirs, complete: bool):
    """Then an empty list contradicts nothing."""
    parts = [
        mig([], used=4 * GIB, memory_shared=True),
        mig(theirs, used=4 * GIB, uuid=OTHER, ci=1, memory_shared=True),
    ]
    found = join(mig_gpu(parts, mig_complete=complete), BOTH, OFFERED, workloads({1: "b"}))
    assert (row(found, "a").memory_used, row(found, "a").processes) == (0, 0)


def partition(occupied, percent):
    """Return an AMD GPU in two partitions, one of them with a process."""
    part = mig([process(7)], slices=1, process_utilization={7: occupied}, utilization_percent=percent)
    device = mig_gpu([part], identity=GpuIdentity(uuid=UUID, index=0, vendor="amd"))
    return replace(device, mig_slices=2)


def held_partition(occupied, percent):
    """Return the row of the only holder of a partition, and the unattributed utilization of the partition."""
    key = DeviceKey(UUID, MIG)
    sharing = DeviceSharing(sharing="amd-partition", isolation="hard", exclusive=True)
    holding = Holding(
        holder=ContainerRef("ml", "a", "main"),
        device=key,
        resource="amd.com/gpu",
        slices=1,
        memory_entitled=None,
        compute_entitled=0.5,
    )
    holdings = Holdings(known=True, holdings=(holding,), devices={key: sharing})
    found = attribute([partition(occupied, percent)], HoldingsIndex(holdings), workloads({7: "a"}), {})
    return row(found, "a"), found.migs[0].unattributed_utilization


@pytest.mark.parametrize(
    ("occupied", "percent", "compute", "source", "rest"),
    [
        (0.0, 80, 0.4, "instance", 0.0),
        (0.0, 15, 0.075, "instance", 0.0),
        (0.0, 5, 0.0, "process", 0.025),
        (30.0, 80, 0.3, "process", 0.1),
    ],
)
def test_no_process_at_one_moment_does_not_make_a_busy_partition_idle(
    occupied, percent, compute, source: str, rest
):
    use, unattributed = held_partition(occupied, percent)
    assert use.compute_used == pytest.approx(compute)
    assert use.compute_source == source
    assert unattributed == pytest.approx(rest)


def test_processes_of_a_pod_are_one_sum_if_one_may_be_of_any_container():
    places = {
        pid: ProcessPlace(pid=pid, known=True, pod_uid="x", container_id=f"{pid:064x}") for pid in (1, 2)
    }
    pod = PodIdentity(
        uid="x",
        namespace="ml",
        name="x",
        containers=("main", "side"),
        container_ids={f"{1:064x}": "main"},
    )
    who = Workloads(places=places, pods={"x": pod}, process_view=True)
    found = join(gpu([process(1), process(2, 3 * GIB)], {1: 10, 2: 30}), offered=whole(), who=who)
    [only] = found.containers
    assert (only.holder, only.memory_used, only.compute_used) == (ContainerRef("ml", "x", ""), 4 * GIB, 0.4)


def unconfirmed(device, allocated, who=None):
    """Join with holdings of an earlier poll."""
    allocations = Allocations(
        allocated=tuple(allocated), offered=tuple(whole()), api_version="v1", read_at=0.0
    )
    holdings = HoldingsIndex(resolve_holdings([device], allocations))
    return attribute([device], holdings, who or workloads(), {}, confirmed=False)


def test_earlier_holdings_do_not_prove_that_a_user_holds_nothing():
    """It may hold the device by now."""
    used = gpu([process(1), process(2)], {1: 10, 2: 20})
    found = unconfirmed(used, held("a", UUID), workloads({1: "a", 2: "b"}))
    assert (row(found, "a").slices, row(found, "a").memory_used) == (1, GIB)
    assert (row(found, "b").slices, row(found, "b").memory_used) == (None, GIB)


@pytest.mark.parametrize("processes", [None, [process(1)]])
def test_earlier_holdings_give_no_container_the_figures_of_a_device(processes):
    """Rules 5 and 6: another container may hold it by now."""
    view = workloads(view=False) if processes is None else workloads({1: "a"})
    use = row(unconfirmed(gpu(processes), held("a", UUID), view), "a")
    assert (use.slices, use.compute_used, use.compute_source) == (1, None, "none")
    assert use.memory_used == (None if processes is None else GIB)
