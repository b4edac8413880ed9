"""The laws hold for any node: sums, no multiplied use, no invented zero, no order."""

import random

from hypothesis import given
from hypothesis import strategies as st

from exporter.attribution import attribute
from exporter.model import (
    Allocation,
    Allocations,
    ContainerRef,
    OfferedDevice,
    PodIdentity,
    ProcessPlace,
    Workloads,
)
from exporter.sharing import resolve_holdings
from tests.attribution.build import UUID, gpu, mig, mig_gpu, process

PODS = ("a", "b", "c", "d")
MIGS = tuple(f"MIG-{n}" for n in range(3))
SIZES = st.one_of(st.none(), st.integers(0, 4 << 30))


@st.composite
def nodes(draw):
    """Draw a GPU, whole or in MIG mode, with any mixture of replicas, processes, places and names."""
    pids = draw(st.lists(st.integers(1, 40), unique=True, max_size=12))
    sized = {pid: draw(SIZES) for pid in pids}
    if draw(st.booleans()):
        reading = gpu(
            draw(st.sampled_from([None, [process(pid, size) for pid, size in sized.items()]])),
            draw(st.one_of(st.none(), st.dictionaries(st.sampled_from(pids or [1]), st.integers(0, 100)))),
            used=draw(st.integers(0, 16 << 30)),
        )
        names = [f"{UUID}::{n}" for n in range(6)] if draw(st.booleans()) else [UUID]
    else:
        parts = [pids[n::3] for n in range(3)]
        reading = mig_gpu(
            [
                mig([process(pid, sized[pid]) for pid in part], uuid=MIGS[n], gi=n, slices=2)
                for n, part in enumerate(parts)
            ]
        )
        names = list(MIGS)
    offered = tuple(OfferedDevice("nvidia.com/gpu", name) for name in names)
    refs = st.builds(ContainerRef, st.just("ml"), st.sampled_from(PODS), st.sampled_from(["x", "y"]))
    allocated = draw(
        st.lists(st.builds(Allocation, refs, st.just("nvidia.com/gpu"), st.sampled_from(names)), max_size=8)
    )
    return [reading], allocated, offered, _workloads(draw, pids)


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


def run(gpus, allocated, offered, workloads):
    """Resolve and join one node."""
    allocations = Allocations(allocated=tuple(allocated), offered=offered, api_version="v1", read_at=0.0)
    return attribute(gpus, resolve_holdings(gpus, allocations), workloads)


@given(nodes())
def test_parts_and_rest_are_the_whole(node):
    """On every device the memory of all containers and the rest is what the device uses, or it is counted."""
    result = run(*node)
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


@given(nodes())
def test_each_process_counts_at_most_once(node):
    """No byte of a process stands on two rows, however many slices, containers or NUMA nodes there are."""
    gpus, allocated, offered, workloads = node
    result = run(gpus, [*allocated, *allocated], offered, workloads)
    by_process = sum(row.memory_used for row in result.containers if row.memory_source == "process")
    listed = [p for g in gpus for p in (g.processes or ())] + [
        p for g in gpus for m in g.mig or () for p in m.processes
    ]
    assert by_process <= sum(p.memory or 0 for p in listed)


@given(nodes())
def test_no_zero_is_invented(node):
    """A zero needs a view of processes and names, and no process on the device that could be the holder's."""
    *_, workloads = node
    result = run(*node)
    for row in result.containers:
        if row.processes == 0:
            assert workloads.process_view
            assert workloads.pods is not None
            assert row.memory_source == "process"
        if row.memory_used is None:
            assert row.memory_source == "none"
        if row.compute_used is None:
            assert row.compute_source == "none"
            assert not (row.compute_entitled is not None and row.compute_source == "process")


@given(nodes(), st.randoms(use_true_random=False))
def test_the_order_of_inputs_does_not_matter(node, shuffler: random.Random):
    """The same facts in another order give the same rows in the same order."""
    gpus, allocated, offered, workloads = node
    again = list(allocated)
    shuffler.shuffle(again)
    places = list(workloads.places.items())
    shuffler.shuffle(places)
    other = Workloads(places=dict(places), pods=workloads.pods, process_view=workloads.process_view)
    assert run(gpus, again, tuple(reversed(offered)), other) == run(gpus, allocated, offered, workloads)


@given(nodes())
def test_one_row_per_container_and_device(node):
    """No two rows would print the same series."""
    keys = [(row.holder, row.device) for row in run(*node).containers]
    assert len(keys) == len(set(keys))


@given(nodes())
def test_entitlement_of_an_offered_device_never_exceeds_it(node):
    """What the holders of distinct replicas are entitled to adds up to the device at most."""
    gpus, allocated, offered, workloads = node
    firsts = {}
    for allocation in allocated:
        firsts.setdefault(allocation.device_id, allocation)
    result = run(gpus, list(firsts.values()), offered, workloads)
    for row in result.gpus:
        entitled = sum(
            r.compute_entitled or 0 for r in result.containers if r.device.uuid == row.identity.uuid
        )
        assert entitled <= 1 + 1e-9
