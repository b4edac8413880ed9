"""Rule 9 of docs/join.md: a sharing system's own meter stands in the place of the processes."""

from dataclasses import replace

import pytest

from exporter.attribution import Attribution
from exporter.model import Allocations, ContainerRef, Meter
from exporter.sharing import resolve_holdings
from tests.core.attribution.build import (
    GIB,
    UUID,
    attribute,
    gpu,
    held,
    process,
    replicas,
    row,
    whole,
    workloads,
)


def join(reading, meters, allocated, offered, who) -> Attribution:
    """Join one node on which these pods, or (pod, container)s, are metered."""
    allocations = Allocations(
        allocated=tuple(sorted(allocated)), offered=tuple(sorted(offered)), api_version="v1", read_at=0.0
    )
    holdings = resolve_holdings([reading], allocations)
    by_ref = {
        ContainerRef("ml", *(key if isinstance(key, tuple) else (key, "main"))): meter
        for key, meter in meters.items()
    }
    metered = tuple(replace(each, meter=by_ref.get(each.holder)) for each in holdings.holdings)
    return attribute([reading], replace(holdings, holdings=metered), who)


def two(meters, reading=None, who=None) -> Attribution:
    """Join a GPU in replicas with a process each of two holders, a and b."""
    return join(
        reading or gpu([process(1, 2 * GIB), process(2, 3 * GIB)], {1: 40, 2: 20}),
        meters,
        held("a", f"{UUID}::0") + held("b", f"{UUID}::1"),
        replicas(4),
        who or workloads({1: "a", 2: "b"}),
    )


def test_a_meter_comes_before_the_processes():
    result = two({"a": Meter(source="hami", memory=GIB, compute=0.25)})
    a, b = row(result, "a"), row(result, "b")
    assert (a.memory_used, a.compute_used, a.processes) == (GIB, 0.25, 1)
    assert (a.memory_source, a.compute_source) == ("hami", "hami")
    assert (b.memory_used, b.compute_used, b.memory_source) == (3 * GIB, 0.2, "process")


def test_the_rest_is_what_the_rows_leave_whichever_source_they_have():
    result = two({"a": Meter(source="hami", memory=GIB, compute=0.25)})
    assert result.gpus[0].unattributed_memory == 8 * GIB - GIB - 3 * GIB
    assert result.gpus[0].unattributed_utilization == 0.15
    assert result.inconsistent == ()


def test_a_meter_that_still_counts_a_killed_process_is_not_used():
    left = {"a": Meter(source="hami", memory=6 * GIB, compute=0.9)}
    reading = gpu([process(2, 3 * GIB)], {2: 20}, used=4 * GIB)
    a = row(two(left, reading), "a")
    assert (a.memory_used, a.compute_used, a.processes) == (0, 0, 0)
    assert (a.memory_source, a.compute_source) == ("process", "process")


@pytest.mark.parametrize(
    ("reading", "who"),
    [
        (gpu([process(2, 3 * GIB)], {2: 20}, used=10 * GIB), workloads({2: "b"})),
        (gpu([process(2, 3 * GIB)], {2: 20}, used=4 * GIB), workloads({}, lost=(2,))),
        (gpu(None, None, used=4 * GIB), workloads()),
    ],
    ids=["the bytes are there", "a process of an unknown owner", "no list of processes"],
)
def test_a_meter_is_used_as_long_as_it_is_possible(reading, who):
    a = row(two({"a": Meter(source="hami", memory=6 * GIB, compute=0.3)}, reading, who), "a")
    assert (a.memory_used, a.compute_used, a.memory_source) == (6 * GIB, 0.3, "hami")


@pytest.mark.parametrize(
    ("compute", "shown"), [(0.0, (None, "none")), (0.9, (0.9, "hami"))], ids=["nor compute", "but compute"]
)
def test_a_zero_of_a_meter_is_unknown_if_the_driver_lists_processes(compute, shown):
    result = two({"a": Meter(source="hami", memory=0, compute=compute)})
    a = row(result, "a")
    assert (a.memory_used, a.memory_source, a.processes) == (None, "none", 1)
    assert (a.compute_used, a.compute_source) == shown
    assert result.gpus[0].unattributed_memory == 8 * GIB - 3 * GIB


def test_a_zero_of_a_meter_is_used_if_the_driver_lists_no_memory():
    a = row(two({"a": Meter(source="hami", memory=0, compute=0.0)}, gpu([process(2, 3 * GIB)], {2: 20})), "a")
    assert (a.memory_used, a.memory_source, a.compute_used, a.compute_source) == (0, "hami", 0.0, "hami")


def test_figures_that_a_system_never_meters_are_those_of_the_processes():
    result = two({"a": Meter(source="cgpu", memory=GIB, memory_only=True)})
    a = row(result, "a")
    assert (a.memory_used, a.memory_source, a.compute_used, a.compute_source) == (GIB, "cgpu", 0.4, "process")


def test_a_figure_that_its_meter_lacks_is_unknown():
    """It must not change its meaning with every gap of its meter."""
    result = two({"a": Meter(source="hami", compute=0.1), "b": Meter(source="hami", memory=GIB)})
    a, b = row(result, "a"), row(result, "b")
    assert (a.memory_used, a.memory_source, a.compute_used, a.compute_source) == (None, "none", 0.1, "hami")
    assert (b.memory_used, b.memory_source, b.compute_used, b.compute_source) == (GIB, "hami", None, "none")
    assert result.gpus[0].unattributed_memory == 7 * GIB


def test_a_meter_needs_no_view_of_processes():
    result = two({"a": Meter(source="hami", memory=GIB, compute=0.0)}, who=workloads(view=False))
    assert (row(result, "a").memory_used, row(result, "a").compute_used) == (GIB, 0.0)
    assert row(result, "a").processes is None
    assert (row(result, "b").memory_used, row(result, "b").compute_used) == (None, None)


def test_a_meter_comes_before_the_device_s_own_numbers():
    meters = {"a": Meter(source="gpushare", memory=GIB)}
    result = join(gpu(None), meters, held("a", UUID), whole(), workloads(view=False))
    a = row(result, "a")
    assert (a.memory_used, a.memory_source, a.compute_used, a.compute_source) == (
        *(GIB, "gpushare"),
        *(None, "none"),
    )


def test_processes_that_could_be_a_metered_container_s_do_not_count_twice():
    who = workloads({1: "p", 2: "p"}, containers={"p": ("x", "y")})
    allocated = held("p", f"{UUID}::0", container="x") + held("p", f"{UUID}::1", container="y")
    reading = gpu([process(1, 2 * GIB), process(2, 3 * GIB)], {1: 40, 2: 20})
    result = join(reading, {("p", "x"): Meter(source="hami", memory=GIB)}, allocated, replicas(4), who)
    shared = row(result, "p", "")
    assert (shared.memory_used, shared.compute_used, shared.processes) == (None, None, 2)
    assert (shared.memory_source, shared.compute_source) == ("none", "none")
    assert row(result, "p", "x").memory_used == GIB
    assert row(result, "p", "y").memory_used is None
    assert result.gpus[0].unattributed_memory == 7 * GIB


def test_a_container_that_holds_by_two_resources_is_metered_once():
    allocated = held("a", f"{UUID}::0") + held("a", f"{UUID}::1", resource="nvidia.com/gpumem")
    offered = replicas(2) + replicas(2, resource="nvidia.com/gpumem")
    meters = {"a": Meter(source="hami", memory=GIB, compute=0.5)}
    result = join(gpu([]), meters, allocated, offered, workloads())
    assert (row(result, "a").memory_used, row(result, "a").compute_used) == (GIB, 0.5)


def test_meters_beyond_the_device_are_counted():
    """Rule 8."""
    meter = Meter(source="hami", memory=5 * GIB, compute=0.6)
    result = two({"a": meter, "b": meter})
    assert (result.gpus[0].unattributed_memory, result.gpus[0].unattributed_utilization) == (0, 0.0)
    assert result.inconsistent == ((UUID, "", "memory"), (UUID, "", "compute"))
