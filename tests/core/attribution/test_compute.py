"""Rule 6 of docs/join.md: compute inside MIG, and of devices whose processes have no figure."""

from dataclasses import replace

import pytest

from exporter.attribution import Attribution
from exporter.model import Profile
from tests.core.attribution.build import (
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

RESOURCE = "nvidia.com/mig-3g.5gb"
OTHER = "MIG-00000000-0000-0000-0000-0000000000cc"


def busy(share, source="gpm", **active):
    """Return a meter that saw the engine at work for a share of the time."""
    return Profile(source=source, active={"graphics_engine": share} | active)


def exclusive(*instances, who=None, pods=("a",)) -> Attribution:
    """Join a cut GPU on which each pod holds one of the MIG devices, in order."""
    uuids = [instance.uuid for instance in instances]
    allocated = [each for pod, uuid in zip(pods, uuids, strict=False) for each in held(pod, uuid)]
    return join(mig_gpu(instances), allocated, [each for uuid in uuids for each in whole(uuid)], who)


@pytest.mark.parametrize(("source", "shown"), [("gpm", "instance"), ("dcgm", "dcgm")])
def test_the_holder_of_a_metered_mig_device_takes_its_part_of_the_gpu(source, shown):
    result = exclusive(mig([process(1)], profiling=busy(0.5, source)), who=workloads({1: "a"}))
    alone = row(result, "a")
    assert alone.compute_used == pytest.approx(0.5 * 3 / 7)
    assert (alone.compute_source, alone.memory_source) == (shown, "process")
    assert result.gpus[0].unattributed_utilization == 0.0


def test_a_holder_without_a_process_has_the_compute_of_its_mig_device():
    result = exclusive(mig([], used=1 << 29, profiling=busy(0.0)), who=workloads())
    assert (row(result, "a").compute_used, row(result, "a").compute_source) == (0.0, "instance")
    assert row(result, "a").processes == 0


def test_a_mig_holder_takes_its_compute_without_a_process_view():
    """Rule 5."""
    result = exclusive(mig(None, profiling=busy(1.0)), who=workloads(view=False))
    assert row(result, "a").compute_used == pytest.approx(3 / 7)
    assert row(result, "a").compute_used <= row(result, "a").compute_entitled
    assert row(result, "a").compute_source == "instance"


@pytest.mark.parametrize(
    "who",
    [
        workloads({1: "a"}, outside=(2,)),
        workloads({1: "a", 2: "b"}),
        workloads({1: "a"}, lost=(2,)),
        workloads({1: "a", 2: "x"}, named=("a", "b", "c")),
    ],
)
def test_with_another_process_the_compute_of_a_mig_device_is_unattributed(who):
    result = exclusive(mig([process(1), process(2)], profiling=busy(0.7)), who=who)
    assert {each.compute_used for each in result.containers} == {None}
    assert result.gpus[0].unattributed_utilization == pytest.approx(0.3)


def test_of_several_holders_none_takes_the_instances_compute():
    """The meter cannot separate them: the use stays unattributed."""
    allocated = held("a", f"{MIG}::0") + held("b", f"{MIG}::1")
    device = mig([process(1), process(2)], profiling=busy(0.7))
    result = join(mig_gpu([device]), allocated, replicas(2, MIG), workloads({1: "a", 2: "b"}))
    assert {(each.compute_used, each.compute_source) for each in result.containers} == {(None, "none")}
    assert result.gpus[0].unattributed_utilization == pytest.approx(0.3)


def test_sm_activity_does_not_replace_engine_activity():
    meter = Profile(source="gpm", active={"sm": 0.4, "tensor": 0.2})
    result = exclusive(mig([process(1)], profiling=meter), who=workloads({1: "a"}))
    assert row(result, "a").compute_used is None
    assert result.gpus[0].unattributed_utilization is None


def test_a_mig_device_of_unknown_size_has_no_part_of_the_gpu():
    result = exclusive(mig([process(1)], compute_slices=None, profiling=busy(0.4)), who=workloads({1: "a"}))
    assert row(result, "a").compute_used is None


def test_a_small_compute_instance_counts_by_its_own_slices():
    """1c.3g: one slice of the three that its GPU instance has."""
    device = mig([process(1)], compute_slices=1, instance_slices=3, profiling=busy(0.5))
    result = exclusive(device, who=workloads({1: "a"}))
    assert row(result, "a").compute_used == pytest.approx(0.5 / 7)


def test_the_use_of_free_mig_devices_is_unattributed():
    instances = (mig([process(1)], profiling=busy(0.5)), mig([], uuid=OTHER, gi=2, profiling=busy(0.2)))
    result = exclusive(*instances, who=workloads({1: "a"}))
    assert result.gpus[0].unattributed_utilization == pytest.approx(0.2 * 3 / 7)
    total = row(result, "a").compute_used + result.gpus[0].unattributed_utilization
    assert total == pytest.approx(0.7 * 3 / 7)


@pytest.mark.parametrize(
    "unknown", [{"profiling": None}, {"compute_slices": None, "profiling": busy(0.1)}], ids=["meter", "size"]
)
def test_one_mig_device_without_a_meter_leaves_the_rest_unknown(unknown):
    """The meter of the whole GPU does not replace those of its parts."""
    instances = (mig([process(1)], profiling=busy(0.5)), mig([], uuid=OTHER, gi=2, **unknown))
    allocated, offered = held("a", MIG), whole(MIG) + whole(OTHER)
    result = join(mig_gpu(instances, profiling=busy(0.9)), allocated, offered, workloads({1: "a"}))
    assert row(result, "a").compute_used == pytest.approx(0.5 * 3 / 7)
    assert result.gpus[0].unattributed_utilization is None


def test_mig_devices_that_may_be_missing_leave_the_rest_unknown():
    """A slot that failed may be a device at work."""
    reading = mig_gpu([mig([process(1)], profiling=busy(0.5))], mig_complete=False)
    result = join(reading, held("a", MIG), whole(MIG), workloads({1: "a"}))
    assert result.gpus[0].unattributed_utilization is None


def test_a_partition_that_its_driver_meters_is_a_share_of_itself():
    result = exclusive(mig([process(1)], utilization_percent=50), who=workloads({1: "a"}))
    assert row(result, "a").compute_used == pytest.approx(0.5 * 3 / 7)
    assert row(result, "a").compute_source == "instance"


def test_processes_of_a_partition_are_shares_of_the_gpu():
    """Rule 3."""
    device = mig([process(1), process(2)], process_utilization={1: 20, 2: 5}, utilization_percent=70)
    allocated = held("a", f"{MIG}::0") + held("b", f"{MIG}::1")
    result = join(mig_gpu([device]), allocated, replicas(2, MIG), workloads({1: "a", 2: "b"}))
    a, b = row(result, "a"), row(result, "b")
    assert (a.compute_used, b.compute_used) == (0.2, 0.05)
    assert {a.compute_source, b.compute_source} == {"process"}
    assert result.gpus[0].unattributed_utilization == pytest.approx(0.7 * 3 / 7 - 0.25)


def test_the_gpu_s_own_utilization_is_used_if_partitions_have_none():
    device = mig([process(1)], process_utilization={1: 20})
    reading = replace(mig_gpu([device]), utilization_percent=50)
    result = join(reading, held("a", MIG), whole(MIG), workloads({1: "a"}))
    assert result.gpus[0].unattributed_utilization == pytest.approx(0.3)


def test_processes_with_more_than_their_partition_has_are_counted():
    """Rule 8."""
    device = mig([process(1)], process_utilization={1: 50})
    result = exclusive(device, who=workloads({1: "a"}))
    assert result.inconsistent == ((UUID, MIG, "compute"),)


@pytest.mark.parametrize(("source", "shown"), [("dcgm", "dcgm"), ("gpm", "device")])
def test_a_whole_gpu_without_utilization_has_that_of_its_meter(source, shown):
    reading = gpu([process(1)], None, utilization_percent=None, profiling=busy(0.4, source))
    result = join(reading, held("a", UUID), whole(), workloads({1: "a"}))
    assert (row(result, "a").compute_used, row(result, "a").compute_source) == (0.4, shown)
    assert result.gpus[0].unattributed_utilization == 0.0


def test_the_driver_s_utilization_comes_before_a_meter():
    reading = gpu([process(1)], None, profiling=busy(0.4, "dcgm"))
    result = join(reading, held("a", UUID), whole(), workloads({1: "a"}))
    assert (row(result, "a").compute_used, row(result, "a").compute_source) == (0.6, "device")
