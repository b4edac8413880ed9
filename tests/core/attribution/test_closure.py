"""Zero needs a proof: a process of unknown place costs the zeros of those that may own it, and no more."""

from dataclasses import replace

import pytest

from exporter.model import ProcessPlace, Workloads
from tests.core.attribution.build import GIB, UUID, gpu, held, join, process, replicas, row, workloads

SHARED = [*held("idle", f"{UUID}::0"), *held("busy", f"{UUID}::1"), *held("paused", f"{UUID}::2")]
IN_PODS = {1: "busy", 2: "paused"}
NAMED = ("idle", "busy", "paused")


def node(samples, who: Workloads, *more):
    """Return the join of a GPU with three holders, of which the first has no process."""
    listed = [process(1, 2 * GIB), process(2), *more]
    return join(gpu(listed, {1: 30, 2: 0} | samples), SHARED, replicas(4), who)


def placed(*places: ProcessPlace, gone=()) -> Workloads:
    """Return workloads in which further processes have these places."""
    who = workloads(IN_PODS, named=NAMED)
    return replace(who, places={**who.places, **{place.pid: place for place in places}}, gone=frozenset(gone))


def of_pod(pid, pod, **more) -> ProcessPlace:
    return ProcessPlace(pid=pid, known=True, pod_uid=f"uid-{pod}", **more)


def figures(found, pod) -> tuple:
    """Return the memory, compute and number of processes of a container."""
    return row(found, pod).memory_used, row(found, pod).compute_used, row(found, pod).processes


def test_without_a_process_of_unknown_place_zeros_are_proven():
    found = node({}, placed())
    assert figures(found, "idle") == (0, 0.0, 0)
    assert figures(found, "paused") == (GIB, 0.0, 1)
    assert figures(found, "busy") == (2 * GIB, 0.3, 1)


def test_a_process_that_computed_and_ended_unseen_leaves_no_compute_of_zero():
    """It is in no list and has no memory any more; any holder may have run it."""
    found = node({9: 40}, placed(ProcessPlace(pid=9, known=False, ended=True)))
    assert figures(found, "idle") == (0, None, 0)
    assert figures(found, "paused") == (GIB, None, 1)
    assert figures(found, "busy") == (2 * GIB, 0.3, 1)


def test_a_process_that_computed_and_ended_is_of_the_container_that_an_earlier_poll_saw_it_in():
    found = node({9: 40}, placed(of_pod(9, "paused", ended=True)))
    assert figures(found, "idle") == (0, 0.0, 0)
    assert figures(found, "paused") == (GIB, 0.4, 1)
    assert 9 not in {shown.pid for shown in found.processes}


def test_a_process_that_computed_on_the_host_and_is_in_no_list_costs_no_zero():
    found = node({9: 40}, placed(ProcessPlace(pid=9, known=True)))
    assert figures(found, "idle") == (0, 0.0, 0)


@pytest.mark.parametrize("percent", [40, 0])
def test_a_running_process_in_no_list_may_still_have_memory(percent):
    found = node({9: percent}, placed(of_pod(9, "idle")))
    computed = percent > 0
    assert figures(found, "idle") == ((None, 0.4, 0) if computed else (0, 0.0, 0))
    assert figures(found, "busy") == (2 * GIB, 0.3, 1)


def test_a_process_that_a_second_list_lacks_has_no_memory():
    """It ended between the list and the reading of its place."""
    ended = ProcessPlace(pid=9, known=False, ended=True)
    assert figures(node({}, placed(ended), process(9)), "idle") == (None, None, None)
    assert figures(node({}, placed(ended, gone=[9]), process(9)), "idle") == (0, 0.0, 0)
    assert figures(node({9: 5}, placed(ended, gone=[9]), process(9)), "idle") == (0, None, 0)


def test_a_process_of_unknown_place_may_be_of_the_pod_of_its_kin():
    """Its container has no known sum; other containers have no zeros."""
    unknown = ProcessPlace(pid=9, known=False, kin=frozenset({"uid-busy"}))
    found = node({9: 5}, placed(unknown), process(9))
    assert figures(found, "busy") == (None, None, None)
    assert figures(found, "paused") == (GIB, None, 1)
    assert figures(found, "idle") == (None, None, None)


def test_an_mps_server_in_no_list_leaves_no_client_idle():
    """The driver books the work of the clients on it."""
    clients = [process(1, 2 * GIB, "mps"), process(2, GIB, "mps")]
    found = join(gpu(clients, {7: 60}), SHARED, replicas(4), placed(ProcessPlace(pid=7, known=True)))
    assert figures(found, "busy") == (2 * GIB, None, 1)
    assert figures(found, "idle") == (0, None, 0)
