"""Processes placed by files: only what has no place, only by one file, only with a view of the host."""

from dataclasses import replace

import pytest

from exporter.model import ContainerFile, PodIdentity, ProcessPlace, SystemFiles, Workloads
from exporter.workloads.places import place_by_files
from tests.core.attribution.build import GIB, UUID, gpu, held, join, process, replicas, row

ID, OTHER_ID = "a" * 64, "b" * 64
POD = PodIdentity(
    uid="uid-a",
    namespace="ml",
    name="a",
    containers=("main", "side"),
    container_ids={ID: "main", OTHER_ID: "side"},
)


def who(places=(), pods=(POD,), view=True) -> Workloads:
    """Return workloads with these places."""
    return Workloads(
        places={place.pid: place for place in places},
        pods=None if pods is None else {pod.uid: pod for pod in pods},
        process_view=view,
    )


def lists(*pids, uid="uid-a", container="", container_id=ID) -> ContainerFile:
    """Return a file that lists these pids."""
    return ContainerFile(pod_uid=uid, container=container, container_id=container_id, pids=pids)


def placed(workloads, *files, pid=7) -> ProcessPlace | None:
    """Return where a pid is placed with these files."""
    return place_by_files(workloads, {"gpu-manager": SystemFiles(containers=files)}).places.get(pid)


@pytest.mark.parametrize("places", [(), (ProcessPlace(pid=7, known=False),)])
def test_a_process_without_a_place_gets_that_of_its_file(places):
    assert placed(who(places), lists(7)) == ProcessPlace(pid=7, known=True, pod_uid="uid-a", container_id=ID)


@pytest.mark.parametrize("pod_uid", [None, "uid-b"])
def test_a_known_place_is_never_overridden(pod_uid):
    """/proc is newer than any list."""
    known = ProcessPlace(pid=7, known=True, pod_uid=pod_uid)
    assert placed(who([known]), lists(7)) == known


def test_two_files_that_list_a_pid_place_it_nowhere():
    assert placed(who(), lists(7), lists(7, container_id=OTHER_ID)) is None


def test_two_systems_that_agree_place_it():
    files = {name: SystemFiles(containers=(lists(7),)) for name in ("gpu-manager", "hami")}
    assert place_by_files(who(), files).places[7].container_id == ID


@pytest.mark.parametrize(
    ("file", "container_id"),
    [
        (lists(7, container_id="", container="side"), OTHER_ID),
        (lists(7, container_id="aaaa"), ID),
        (lists(7, container_id="", container="gone"), None),
        (lists(7, container_id="", container=""), None),
        (lists(7, container_id="c" * 64), "c" * 64),
    ],
)
def test_the_container_is_found_by_what_the_file_has(file, container_id):
    place = placed(who(), file)
    assert (place.pod_uid, place.container_id) == ("uid-a", container_id)


@pytest.mark.parametrize("pods", [None, (), (replace(POD, uid="uid-b"),)])
def test_a_pod_that_is_not_here_places_nothing(pods):
    """The files of a pod outlive it, and its pids are reused."""
    assert placed(who(pods=pods), lists(7)) is None


def test_without_a_view_of_the_host_nothing_is_placed():
    """The pids that the driver names then mean others than those of the file."""
    workloads = who(view=False)
    assert place_by_files(workloads, {"gpu-manager": SystemFiles(containers=(lists(7),))}) is workloads


def test_files_without_pids_change_nothing():
    workloads = who([ProcessPlace(pid=7, known=False)])
    silent = ContainerFile(pod_uid="uid-a", container="main")
    assert place_by_files(workloads, {"hami": SystemFiles(containers=(silent,))}) is workloads


def test_the_use_of_a_placed_process_counts_for_its_container():
    pod = PodIdentity(uid="uid-a", namespace="ml", name="a", containers=("main",), container_ids={ID: "main"})
    lost = who([ProcessPlace(pid=7, known=False)], (pod,))
    node = gpu([process(7, GIB)], {7: 40})
    allocated = held("a", f"{UUID}::0")
    without = row(join(node, allocated, replicas(2), lost), "a")
    found = place_by_files(lost, {"gpu-manager": SystemFiles(containers=(lists(7),))})
    with_file = row(join(node, allocated, replicas(2), found), "a")
    assert (without.memory_used, without.processes) == (None, None)
    assert (with_file.memory_used, with_file.processes, with_file.compute_used) == (GIB, 1, 0.4)
