"""The laws of attribution on random nodes."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import (
    Allocation,
    Allocations,
    ContainerRef,
    Meter,
    OfferedDevice,
    PodIdentity,
    ProcessPlace,
    Profile,
    Workloads,
    total,
)
from exporter.sharing import resolve_holdings
from tests.core.attribution.build import UUID, attribute, gpu, mig, mig_gpu, process

PODS = ("a", "b", "c", "d")
MIGS = tuple(f"MIG-{n}" for n in range(3))
SIZES = st.one_of(st.none(), st.integers(0, 4 << 30))
KINDS = st.sampled_from(["compute", "mps"])
SHARES = st.one_of(st.none(), st.floats(0, 1))
PROFILES = st.one_of(
    st.none(),
    st.builds(
        Profile,
        source=st.sampled_from(["gpm", "dcgm"]),
        active=SHARES.map(lambda share: {} if share is None else {"graphics_engine": share}),
    ),
)
REFS = st.builds(ContainerRef, st.just("ml"), st.sampled_from(PODS), st.sampled_from(["x", "y"]))
METERS = st.dictionaries(
    REFS, st.builds(Meter, source=st.just("meter"), memory=SIZES, compute=SHARES), max_size=3
)


@st.composite
def nodes(draw):
    """Draw a GPU, whole or cut, with any mixture of replicas, processes, places, names and meters."""
    pids = draw(st.lists(st.integers(1, 40), unique=True, max_size=12))
    sized = {pid: draw(SIZES) for pid in pids}
    if draw(st.booleans()):
        reading = gpu(
            draw(st.sampled_from([None, [process(pid, size, draw(KINDS)) for pid, size in sized.items()]])),
            draw(st.one_of(st.none(), st.dictionaries(st.sampled_from(pids or [1]), st.integers(0, 100)))),
            used=draw(st.integers(0, 16 << 30)),
            utilization_percent=draw(st.one_of(st.none(), st.integers(0, 100))),
            profiling=draw(PROFILES),
        )
        names = [f"{UUID}::{n}" for n in range(6)] if draw(st.booleans()) else [UUID]
    else:
        parts = [pids[n::3] for n in range(3)]
        reading = mig_gpu(
            [
                mig(
                    [process(pid, sized[pid]) for pid in part],
                    uuid=MIGS[n],
                    gi=n,
                    slices=2,
                    profiling=draw(PROFILES),
                )
                for n, part in enumerate(parts)
            ]
        )
        names = [f"{uuid}::{n}" for uuid in MIGS for n in range(2)] if draw(st.booleans()) else list(MIGS)
    offered = tuple(OfferedDevice("nvidia.com/gpu", name) for name in names)
    allocated = draw(
        st.lists(st.builds(Allocation, REFS, st.just("nvidia.com/gpu"), st.sampled_from(names)), max_size=8)
    )
    return [reading], allocated, offered, _workloads(draw, pids), draw(METERS)


def _workloads(draw, pids):
    uids = st.one_of(st.none(), st.sampled_from([f"uid-{name}" for name in (*PODS, "z")]))
    places = {pid: ProcessPlace(pid=pid, known=draw(st.booleans()), pod_uid=draw(uids)) for pid in pids}
    containers = draw(st.sampled_from([(), ("x",), ("x", "y")]))
    named = draw(st.sets(st.sampled_from(PODS)))
    pods = {
        f"uid-{n}": PodIdentity(uid=f"uid-{n}", namespace="ml", name=n, containers=containers) for n in named
    }
    return Workloads(
        places=places, pods=draw(st.sampled_from([None, pods])), process_view=draw(st.booleans())
    )


def run(gpus, allocated, offered, workloads, meters):
    """Resolve and join one node on which some holders are metered."""
    allocations = Allocations(allocated=tuple(allocated), offered=offered, api_version="v1", read_at=0.0)
    holdings = resolve_holdings(gpus, allocations)
    metered = tuple(replace(each, meter=meters.get(each.holder)) for each in holdings.holdings)
    return attribute(gpus, replace(holdings, holdings=metered), workloads)


@given(nodes())
def test_laws_hold_for_any_node(node):
    """One example costs more than all of the checks: they share it."""
    result = run(*node)
    for check in (
        assert_memory_adds_up,
        assert_compute_adds_up,
        assert_own_figures_within_entitlement,
        assert_zeros_are_proven,
        assert_rows_are_unique,
        assert_processes_are_those_of_the_driver,
        assert_processes_add_up,
    ):
        check(node, result)
    assert_order_does_not_matter(node, result)
    assert_duplicates_count_once(node)
    assert_entitlement_within_device(node)


def assert_memory_adds_up(_node, result):
    """Expect the containers and the rest to use what the device uses, or the excess to be counted."""
    wholes = [(row.identity.uuid, "", row.reading.memory, row.unattributed_memory) for row in result.gpus]
    wholes += [(*row.device, row.reading.memory, row.unattributed_memory) for row in result.migs]
    for uuid, mig_uuid, memory, rest in wholes:
        parts = sum(
            row.memory_used or 0
            for row in result.containers
            if row.device.uuid == uuid and (not mig_uuid or row.device.mig_uuid == mig_uuid)
        )
        if (uuid, mig_uuid, "memory") in result.inconsistent:
            assert rest == 0
            assert parts > memory.used
        else:
            assert parts + rest == memory.used


def assert_compute_adds_up(node, result):
    """Expect containers and rest to compute what the device does, unless they do more than it reports."""
    ((reading,), *_), (row,) = node, result.gpus
    parts = sum(container.compute_used or 0 for container in result.containers)
    assert (parts > 1 + 1e-6) == ((row.identity.uuid, "", "compute") in result.inconsistent)
    if row.unattributed_utilization is not None:
        whole = parts + row.unattributed_utilization
        assert whole == pytest.approx(max(_used(reading), parts), abs=1e-8)


def _used(reading):
    """Return the utilization of a GPU by its meters."""
    if reading.mig_enabled:
        return sum(instance.profiling.active["graphics_engine"] * 2 / 7 for instance in reading.mig)
    percent = reading.utilization_percent
    return reading.profiling.active["graphics_engine"] if percent is None else percent / 100


def assert_own_figures_within_entitlement(_node, result):
    """Expect a device's own figure, given to a holder, to be at most its entitlement."""
    for row in result.containers:
        if row.compute_source in ("instance", "dcgm", "device") and row.compute_entitled is not None:
            assert row.compute_used <= row.compute_entitled + 1e-9


def assert_zeros_are_proven(node, result):
    """Expect a view of processes and names for each zero."""
    *_, workloads, _ = node
    for row in result.containers:
        if row.processes == 0:
            assert workloads.process_view
            assert workloads.pods is not None
            assert row.memory_source in ("process", "meter") or row.memory_used is None
        if row.memory_used is None:
            assert row.memory_source == "none"
        if row.compute_used is None:
            assert row.compute_source == "none"


def assert_rows_are_unique(_node, result):
    """Expect no two rows that would print the same series."""
    keys = [(row.holder, row.device) for row in result.containers]
    assert len(keys) == len(set(keys))


def assert_processes_are_those_of_the_driver(node, result):
    """Expect one row per device for each process of the driver's lists, if processes can be seen at all."""
    gpus, _, _, workloads, _ = node
    listed = [(UUID, "", p.pid) for g in gpus for p in g.processes or ()]
    listed += [(UUID, m.uuid, p.pid) for g in gpus for m in g.mig or () for p in m.processes]
    rows = [(*row.device, row.pid) for row in result.processes]
    assert sorted(rows) == (sorted(listed) if workloads.process_view else [])


def assert_processes_add_up(_node, result):
    """Expect a container's sums over processes to be those of their rows."""
    for row in result.containers:
        own = [each for each in result.processes if (each.holder, each.device) == (row.holder, row.device)]
        if row.processes is not None:
            assert len(own) == row.processes
        if row.memory_source == "process":
            assert row.memory_used == total([each.memory for each in own])
        if row.compute_source == "process":
            assert row.compute_used == pytest.approx(total([each.compute for each in own]))


def assert_order_does_not_matter(node, result):
    """Expect the same rows in the same order from the same facts in another order."""
    gpus, allocated, offered, workloads, meters = node
    places = dict(reversed(workloads.places.items()))
    other = replace(workloads, places=places)
    assert run(gpus, list(reversed(allocated)), tuple(reversed(offered)), other, meters) == result


def assert_duplicates_count_once(node):
    """Expect no byte of a process on two rows, however many slices, containers or NUMA nodes there are."""
    gpus, allocated, *rest = node
    result = run(gpus, [*allocated, *allocated], *rest)
    by_process = sum(row.memory_used for row in result.containers if row.memory_source == "process")
    listed = [p for g in gpus for p in (g.processes or ())] + [
        p for g in gpus for m in g.mig or () for p in m.processes
    ]
    assert by_process <= sum(p.memory or 0 for p in listed)


def assert_entitlement_within_device(node):
    """Expect the holders of distinct replicas to be entitled to the device at most."""
    gpus, allocated, *rest = node
    firsts = {}
    for allocation in allocated:
        firsts.setdefault(allocation.device_id, allocation)
    result = run(gpus, list(firsts.values()), *rest)
    (uuid,) = (row.identity.uuid for row in result.gpus)
    entitled = sum(row.compute_entitled or 0 for row in result.containers if row.device.uuid == uuid)
    assert entitled <= 1 + 1e-9
