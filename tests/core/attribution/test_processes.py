"""The rows of processes: whose each is, what it uses, and that they agree with the rows of containers."""

from dataclasses import replace

import pytest

from exporter.model import ContainerRef, DeviceKey, ProcessPlace, ProcessRow
from exporter.model.snapshot import largest_processes
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
    whole,
    workloads,
)


def by_pid(result) -> dict[int, ProcessRow]:
    """Return the rows of processes by pid."""
    return {row.pid: row for row in result.processes}


def test_each_process_has_its_owner_and_its_part():
    reading = gpu([process(1, 2 * GIB), process(2, GIB), process(9, GIB)], {1: 30})
    who = workloads({1: "a", 2: "a"}, outside=[9])
    rows = by_pid(join(reading, held("a", UUID), whole(), who))

    ref = ContainerRef("ml", "a", "main")
    assert [(rows[pid].holder, rows[pid].place) for pid in (1, 2, 9)] == [
        (ref, "pod"),
        (ref, "pod"),
        (None, "host"),
    ]
    assert [(rows[pid].memory, rows[pid].compute) for pid in (1, 2)] == [(2 * GIB, 0.3), (GIB, 0.0)]


def test_a_process_that_cannot_be_placed_is_listed_without_an_owner():
    who = workloads({1: "a", 2: "x", 3: "y"}, lost=[4], named=["a"])
    rows = by_pid(join(gpu([process(pid) for pid in (1, 2, 3, 4)], {}), held("a", UUID), whole(), who))

    assert [(rows[pid].holder, rows[pid].place) for pid in (2, 3, 4)] == [
        (None, "pod"),
        (None, "pod"),
        (None, "unknown"),
    ]


def test_command_names_come_with_the_place_and_not_without():
    """Another process may have the pid by now."""
    places = {
        1: ProcessPlace(pid=1, known=True, command="Xorg"),
        2: ProcessPlace(pid=2, known=False, command="other"),
    }
    who = replace(workloads(), places=places)
    rows = by_pid(join(gpu([process(1), process(2), process(3)], {}), (), whole(), who))

    assert [rows[pid].command for pid in (1, 2, 3)] == ["Xorg", None, None]


@pytest.mark.parametrize("reading", [gpu([process(1)], {}), gpu(None)])
def test_without_a_view_of_processes_there_are_no_rows(reading):
    view = reading.processes is None
    result = join(reading, held("a", UUID), whole(), workloads({1: "a"}, view=view))

    assert result.processes == ()


def test_processes_inside_mig_are_on_their_mig_device_without_compute():
    result = join(mig_gpu([mig([process(1)])]), held("a", MIG), whole(MIG), workloads({1: "a"}))

    (row,) = result.processes
    assert row.device == DeviceKey(UUID, MIG)
    assert row.compute is None


def test_a_busy_mps_server_leaves_the_compute_of_idle_clients_unknown():
    """The driver may count a client's work as the server's."""
    reading = gpu([process(1, kind="mps"), process(9, 0)], {9: 55}, compute_mode="exclusive_process")
    allocated = held("a", f"{UUID}::0") + held("b", f"{UUID}::1")
    result = join(reading, allocated, replicas(2), workloads({1: "a"}, outside=[9]))
    rows = by_pid(result)

    assert [each.compute_used for each in result.containers] == [None, None]
    assert (rows[1].compute, rows[9].compute) == (None, 0.55)


def test_of_too_many_processes_the_largest_are_kept_and_the_others_counted():
    found = [ProcessRow(device=DeviceKey(UUID), pid=pid, memory=pid) for pid in range(1, 11)]

    rows, left_out = largest_processes(reversed(found), most=4)

    assert [row.pid for row in rows] == [7, 8, 9, 10]
    assert left_out == 6
    assert largest_processes(found) == (tuple(found), 0)
