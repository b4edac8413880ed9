"""MPS: the driver books what clients compute on their server, which it lists as a process like others."""

import pytest

from exporter.model import Allocations
from exporter.sharing import resolve_holdings
from tests.core.attribution.build import (
    GIB,
    UUID,
    attribute,
    gpu,
    held,
    join,
    process,
    replicas,
    row,
    whole,
    workloads,
)

SERVER = process(9, 0)
DAEMON = "mps-daemon"
ONE, TWO = held("a", f"{UUID}::0"), held("a", f"{UUID}::0") + held("b", f"{UUID}::1")


def client(pid):
    """Return an MPS client."""
    return process(pid, kind="mps")


def busy(*clients, more=(), **utilization):
    """Return a GPU with a server that worked for 55 % of the time."""
    return gpu([*map(client, clients), SERVER, *more], {9: 55}, utilization_percent=60, **utilization)


def test_a_busy_server_leaves_the_compute_of_idle_clients_unknown():
    reading = busy(1, compute_mode="exclusive_process")
    result = join(reading, TWO, replicas(4), workloads({1: "a"}, outside=(9,)))
    assert [row(result, name).compute_used for name in "ab"] == [None, None]
    assert (row(result, "b").memory_used, row(result, "b").isolation) == (0, "soft")
    assert result.gpus[0].unattributed_utilization == 0.6


def test_an_idle_server_proves_that_all_clients_are_idle():
    reading = gpu([client(1), SERVER], {}, utilization_percent=0)
    result = join(reading, TWO, replicas(4), workloads({1: "a", 9: DAEMON}))
    assert [row(result, name).compute_used for name in ("a", "b", DAEMON)] == [0.0, 0.0, 0.0]


def test_the_work_of_a_server_in_a_pod_is_not_that_pods():
    """The control daemon of a device plugin runs in a pod."""
    reading = gpu([client(1), client(2), SERVER], {1: 7, 9: 55}, utilization_percent=62)
    result = join(reading, TWO, replicas(4), workloads({1: "a", 2: "b", 9: DAEMON}))
    assert [row(result, name).compute_used for name in ("a", "b", DAEMON)] == [0.07, None, None]
    assert row(result, DAEMON).memory_used == 0
    assert result.gpus[0].unattributed_utilization == 0.55


@pytest.mark.parametrize("places", [{9: DAEMON}, {}], ids=["in a pod", "on the host"])
def test_the_only_holder_takes_the_work_of_the_server_of_its_clients(places):
    who = workloads({1: "a", 2: "a"} | places, outside=() if places else (9,))
    result = join(busy(1, 2), ONE, replicas(4), who)
    a = row(result, "a")
    assert (a.compute_used, a.compute_source, a.processes) == (0.55, "server", 2)
    assert result.gpus[0].unattributed_utilization == 0.05
    assert {each.pid: each.compute for each in result.processes} == {1: None, 2: None, 9: 0.55}
    if places:
        assert row(result, DAEMON).compute_used == 0.0


@pytest.mark.parametrize("kind", ["mps", "compute"])
def test_a_client_is_served_by_mps_whatever_the_sharing_is_called(kind):
    """The holder of a whole GPU may have started the server itself."""
    reading = gpu([process(1, kind=kind), SERVER], {9: 90})
    result = join(reading, held("a", UUID), whole(), workloads({1: "a"}, outside=(9,)))
    assert row(result, "a").sharing == "exclusive"
    assert row(result, "a").compute_used == (0.9 if kind == "mps" else 0.0)


def test_a_container_with_server_and_clients_has_the_work_of_the_server():
    result = join(busy(1), TWO, replicas(4), workloads({1: "a", 9: "a"}))
    assert [row(result, name).compute_used for name in "ab"] == [0.55, None]
    assert row(result, "a").compute_source == "server"


def test_a_container_with_a_client_and_other_work_has_no_known_sum():
    reading = gpu([client(1), process(2), SERVER], {2: 30, 9: 25}, utilization_percent=55)
    result = join(reading, TWO, replicas(4), workloads({1: "a", 2: "a"}, outside=(9,)))
    assert row(result, "a").compute_used is None
    assert {each.pid: each.compute for each in result.processes} == {1: None, 2: 0.3, 9: 0.25}


@pytest.mark.parametrize(
    ("reading", "who"),
    [
        pytest.param(busy(1, 2), workloads({1: "a", 2: "x"}, outside=(9,)), id="another container's client"),
        pytest.param(busy(1, 2), workloads({1: "a"}, outside=(2, 9)), id="a client of the host"),
        pytest.param(busy(1, 2), workloads({1: "a"}, outside=(9,), lost=(2,)), id="an unreadable client"),
        pytest.param(busy(1, more=[process(8)]), workloads({1: "a"}, outside=(8, 9)), id="two servers"),
        pytest.param(
            gpu([client(1), process(9, kind="graphics")], {9: 55}),
            workloads({1: "a"}, outside=(9,)),
            id="graphics",
        ),
        pytest.param(
            gpu([client(1), SERVER], {9: None}), workloads({1: "a"}, outside=(9,)), id="an unknown figure"
        ),
    ],
)
def test_without_certainty_no_container_takes_the_work_of_the_server(reading, who):
    result = join(reading, ONE, replicas(4), who)
    assert [each.compute_used for each in result.containers] == [None] * len(result.containers)
    assert result.gpus[0].unattributed_utilization == 0.6


def test_a_holder_that_came_after_the_reading_takes_no_work_of_a_server():
    reading = busy(1)
    now, before = (_resolved(reading, name) for name in "ab")
    result = attribute([reading], now, workloads({1: "a"}, outside=(9,)), stale={UUID: before})
    assert row(result, "a").compute_used is None
    assert row(result, "a").memory_used == GIB


def _resolved(reading, name):
    allocations = Allocations(
        allocated=tuple(held(name, f"{UUID}::0")), offered=tuple(replicas(4)), api_version="v1", read_at=0.0
    )
    return resolve_holdings([reading], allocations)
