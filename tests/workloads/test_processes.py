import os
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.model import ProcessPlace
from exporter.workloads.processes import ProcessTable, boot_seconds
from tests.workloads.tree import TICKS, write_process, write_stat

UID = "1f8e2b60-90aa-4c3d-8e21-0b7d55c0ffee"
OTHER_UID = "77777777-1111-2222-3333-444444444444"
ID = "c0de" * 16
OTHER_ID = "beef" * 16
IN_POD = f"/kubepods/burstable/pod{UID}/{ID}"
IN_OTHER_POD = f"/kubepods/burstable/pod{OTHER_UID}/{OTHER_ID}"
SIBLING = f"/../cri-containerd-{ID}.scope"


def placed(pid: int = 100, command: str | None = "python") -> ProcessPlace:
    """Give the place of a process in the pod under test."""
    return ProcessPlace(pid=pid, known=True, pod_uid=UID, container_id=ID, command=command)


def unknown(pid: int = 100) -> ProcessPlace:
    """Give the place of a process that could not be found."""
    return ProcessPlace(pid=pid, known=False)


def test_process_is_placed(tmp_path):
    """A process that runs in a container is known with its pod and container."""
    write_process(tmp_path, 100, IN_POD)
    assert {100: placed()} == ProcessTable(tmp_path).read(dict.fromkeys([100], 20.0))


def test_process_of_the_host_is_known_to_be_in_no_pod(tmp_path):
    """A process outside all pods is known, which is more than unknown."""
    write_process(tmp_path, 100, "/system.slice/nvidia-persistenced.service")
    expected = ProcessPlace(pid=100, known=True, command="python")
    assert {100: expected} == ProcessTable(tmp_path).read(dict.fromkeys([100], 20.0))


def test_each_pid_is_answered_once(tmp_path):
    """All pids asked for get an answer, and one bad one does not cost the others theirs."""
    write_process(tmp_path, 100, IN_POD)
    places = ProcessTable(tmp_path).read(dict.fromkeys(iter([100, 7, 100, -1, 0, 2**70]), 20.0))
    assert {100: placed(), 7: unknown(7), -1: unknown(-1), 0: unknown(0), 2**70: unknown(2**70)} == places


@pytest.mark.parametrize(
    "comm", ["a b", "a) S 1 (b", "))))", "((", "", "x) Z 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1", "a\nb"]
)
def test_command_name_cannot_shift_the_fields(tmp_path, comm):
    """A command name with blanks, brackets and line feeds is kept; start time and state stay as they are."""
    write_process(tmp_path, 100, IN_POD, start=30.0, comm=comm)
    table = ProcessTable(tmp_path)
    assert {100: placed(command=comm[:15] or None)} == table.read(dict.fromkeys([100], 30.0))
    assert {100: unknown()} == table.read(dict.fromkeys([100], 29.0))


@pytest.mark.parametrize(
    ("later_ticks", "known"), [(-1, True), (0, True), (1, True), (2, False), (100_000, False)]
)
def test_process_that_started_later_than_the_driver_was_asked_is_another_one(tmp_path, later_ticks, known):
    """A start more than one tick after the driver's answer means that the pid has been given out again."""
    write_process(tmp_path, 100, IN_POD, start=50 + later_ticks / TICKS)
    assert known == ProcessTable(tmp_path).read(dict.fromkeys([100], 50.0))[100].known


def test_reused_pid_does_not_inherit_the_place(tmp_path):
    """A pid given out again is unknown, whatever was known of its predecessor."""
    write_process(tmp_path, 100, IN_POD, start=10)
    table = ProcessTable(tmp_path)
    table.read(dict.fromkeys([100], 20.0))
    write_process(tmp_path, 100, IN_OTHER_POD, start=25)
    assert {100: unknown()} == table.read(dict.fromkeys([100], 22.0))
    assert table.read(dict.fromkeys([100], 30.0))[100].pod_uid == OTHER_UID


def test_start_time_is_not_checked_without_a_boot_clock(tmp_path):
    """Without the moment of the driver's answer every live process counts."""
    write_process(tmp_path, 100, IN_POD, start=1e9)
    assert {100: placed()} == ProcessTable(tmp_path).read(dict.fromkeys([100], None))


def test_each_pid_is_held_against_its_own_moment(tmp_path):
    """Pids that the driver named at different moments are told from their successors one by one."""
    for pid in (100, 101, 102):
        write_process(tmp_path, pid, IN_POD, start=25)
    places = ProcessTable(tmp_path).read({100: 20.0, 101: 30.0, 102: None})
    assert places == {100: unknown(100), 101: placed(101), 102: placed(102)}


def test_pid_reused_while_it_is_read_is_unknown(tmp_path):
    """A process whose start time changes around the reading of its cgroup is not placed."""
    write_stat(tmp_path, 100, start=10)
    pipe = tmp_path / "100" / "cgroup"
    os.mkfifo(pipe)

    def take_over():
        with pipe.open("w") as file:  # opens once the reader has come as far as the cgroup
            write_stat(tmp_path, 100, start=11)
            file.write(f"0::{IN_POD}\n")

    successor = threading.Thread(target=take_over)
    successor.start()
    assert {100: unknown()} == ProcessTable(tmp_path).read(dict.fromkeys([100], 20.0))
    successor.join()


def test_ended_process_keeps_its_place_for_one_read(tmp_path):
    """A process that ended since the read before is placed once more, and then forgotten."""
    write_process(tmp_path, 100, IN_POD)
    table = ProcessTable(tmp_path)
    table.read(dict.fromkeys([100], 20.0))
    shutil.rmtree(tmp_path / "100")
    assert {100: placed()} == table.read(dict.fromkeys([100], 25.0))
    assert {100: unknown()} == table.read(dict.fromkeys([100], 30.0))


def test_ended_process_that_was_not_asked_for_before_is_unknown(tmp_path):
    """What an earlier read than the last one found is not remembered."""
    write_process(tmp_path, 100, IN_POD)
    table = ProcessTable(tmp_path)
    table.read(dict.fromkeys([100], 20.0))
    table.read(dict.fromkeys([], 25.0))
    shutil.rmtree(tmp_path / "100")
    assert {100: unknown()} == table.read(dict.fromkeys([100], 30.0))


@pytest.mark.parametrize("text", [None, "", "\n"])
@pytest.mark.parametrize(("start", "expected"), [(10, placed()), (12, unknown())])
def test_unreadable_cgroup_is_bridged_for_the_same_process_only(tmp_path, text, start, expected):
    """Without a readable cgroup the place of the read before holds, if it is still the same process."""
    write_process(tmp_path, 100, IN_POD, start=10)
    table = ProcessTable(tmp_path)
    table.read(dict.fromkeys([100], 20.0))
    write_stat(tmp_path, 100, start=start)
    cgroup = tmp_path / "100" / "cgroup"
    cgroup.unlink() if text is None else cgroup.write_text(text)
    assert {100: expected} == table.read(dict.fromkeys([100], 25.0))


def test_unreadable_cgroup_of_a_new_process_is_unknown(tmp_path):
    """A process without a readable cgroup is unknown, not outside all pods."""
    write_stat(tmp_path, 100)
    (tmp_path / "100" / "cgroup").mkdir()
    assert {100: unknown()} == ProcessTable(tmp_path).read(dict.fromkeys([100], 20.0))


@pytest.mark.parametrize("stat", ["", "100 (x) S 1 2 3", "100 (x) " + "a " * 50, "garbage", "100 (x"])
def test_torn_stat_is_unknown(tmp_path, stat):
    """A process without a start time cannot be told from its successor, so it is unknown."""
    write_process(tmp_path, 100, IN_POD)
    (tmp_path / "100" / "stat").write_text(stat)
    assert {100: unknown()} == ProcessTable(tmp_path).read(dict.fromkeys([100], 20.0))


def test_zombie_at_the_root_is_unknown(tmp_path):
    """Cgroup v1 moves a zombie to the root, which does not mean that it ran outside all pods."""
    write_process(tmp_path, 100, "4:memory:/\n1:cpu:/\n")
    write_stat(tmp_path, 100, state="Z")
    assert {100: unknown()} == ProcessTable(tmp_path).read(dict.fromkeys([100], 20.0))


@pytest.mark.parametrize("v2", ["", "0::/system.slice/containerd.service\n"], ids=["v1", "hybrid"])
@pytest.mark.parametrize(("state", "flags"), [("R", 0x4), ("D", 0x404004), ("Z", 0)])
def test_a_process_that_ends_is_not_said_to_run_outside_all_pods(tmp_path, state, flags, v2):
    """Cgroup v1 names the root from when the kernel takes it apart, which may take long."""
    write_process(tmp_path, 100, f"4:memory:{IN_POD}\n1:cpu:{IN_POD}\n{v2}")
    table = ProcessTable(tmp_path)
    assert {100: placed()} == table.read(dict.fromkeys([100], 20.0))
    write_process(tmp_path, 100, f"4:memory:/\n1:cpu:/\n{v2}")
    write_stat(tmp_path, 100, state=state, flags=flags)
    assert {100: placed()} == table.read(dict.fromkeys([100], 25.0))
    assert {100: placed()} == table.read(dict.fromkeys([100], 30.0))
    assert {100: unknown()} == ProcessTable(tmp_path).read(dict.fromkeys([100], 30.0))


DOCKER = f"/../../../docker/{OTHER_ID}"


@pytest.mark.parametrize("path", [DOCKER, f"/docker/{OTHER_ID}", f"/system.slice/docker-{OTHER_ID}.scope"])
def test_what_a_docker_in_a_pod_has_started_is_the_pod_s(tmp_path, path):
    """On cgroup v2 its containers lie beside all pods, and only its parents tell whose it is."""
    write_process(tmp_path, 100, path, parent=90)
    write_process(tmp_path, 90, "/system.slice/docker.service", parent=80)
    write_process(tmp_path, 80, IN_POD, parent=70)
    assert {100: placed()} == ProcessTable(tmp_path).read(dict.fromkeys([100], 20.0))


def test_what_a_docker_of_the_host_has_started_is_in_no_pod(tmp_path):
    """Nobody above it is in a pod. Where that cannot be read, it is not known."""
    write_process(tmp_path, 100, DOCKER, parent=90)
    write_process(tmp_path, 90, "/system.slice/docker.service", parent=1)
    assert not ProcessTable(tmp_path).read(dict.fromkeys([100], 20.0))[100].known
    write_process(tmp_path, 1, "/init.scope")
    found = ProcessTable(tmp_path).read(dict.fromkeys([100], 20.0))[100]
    assert (found.known, found.pod_uid, found.container_id) == (True, None, OTHER_ID)


def test_a_docker_in_a_pod_without_a_cgroup_is_in_some_pod(tmp_path):
    """The container that started it is known, and whose that is, the objects of pods tell."""
    write_process(tmp_path, 100, DOCKER, parent=80)
    write_process(tmp_path, 80, f"/k8s.io/{ID}", parent=1)
    write_process(tmp_path, 1, "/init.scope")
    expected = replace(placed(), known=False, pod_uid=None)
    assert {100: expected} == ProcessTable(tmp_path).read(dict.fromkeys([100], 20.0))


def test_parents_that_go_in_a_circle_end(tmp_path):
    """A tree that is none, as of numbers that were given out again."""
    write_process(tmp_path, 100, DOCKER, parent=90)
    write_process(tmp_path, 90, "/system.slice/docker.service", parent=90)
    assert not ProcessTable(tmp_path).read(dict.fromkeys([100], 20.0))[100].known


@pytest.mark.parametrize("path", [f"/k8s.io/{ID}", f"/system.slice/crio-{ID}.scope"])
def test_a_container_of_a_kubelet_without_cgroups_of_pods_is_in_some_pod(tmp_path, path):
    """Its id is known, and whose it is can be told by the objects of pods only."""
    write_process(tmp_path, 100, path)
    expected = ProcessPlace(pid=100, known=False, container_id=ID, command="python")
    assert {100: expected} == ProcessTable(tmp_path).read(dict.fromkeys([100], 20.0))


def test_zombie_keeps_the_place_it_ran_in(tmp_path):
    """A zombie is placed by the read before, and by its cgroup where the kernel still names it."""
    write_process(tmp_path, 100, IN_POD)
    table = ProcessTable(tmp_path)
    write_stat(tmp_path, 100, state="Z")
    assert {100: placed()} == table.read(dict.fromkeys([100], 20.0))
    (tmp_path / "100" / "cgroup").write_text("1:cpu:/\n")
    assert {100: placed()} == table.read(dict.fromkeys([100], 25.0))


def test_a_process_that_renames_itself_is_told_by_its_new_name(tmp_path):
    """The name is read with the start time, each time: a server that is started as python says what it is."""
    write_process(tmp_path, 100, IN_POD)
    table = ProcessTable(tmp_path)
    table.read(dict.fromkeys([100], 20.0))
    write_stat(tmp_path, 100, comm="VLLM::EngineCore")
    assert table.read(dict.fromkeys([100], 20.0))[100].command == "VLLM::EngineCor"


def test_a_reused_pid_has_no_name_of_the_one_before(tmp_path):
    """What started after the driver was asked is another process, whose name says nothing of the first."""
    write_process(tmp_path, 100, IN_POD, comm="train")
    table = ProcessTable(tmp_path)
    assert table.read({100: 20.0})[100].command == "train"
    write_process(tmp_path, 100, IN_POD, start=50.0, comm="other")
    assert table.read({100: 20.0})[100].command is None


def test_a_name_that_is_no_text_and_one_without_end_are_bounded(tmp_path):
    """Bytes that are no UTF-8 are replaced, and a name of the kernel's own threads is cut."""
    write_process(tmp_path, 100, IN_POD)
    stat = tmp_path / "100/stat"
    stat.write_bytes(stat.read_bytes().replace(b"python", b"\xff\xfe" + b"k" * 64))
    assert ProcessTable(tmp_path).read({100: None})[100].command == "\N{REPLACEMENT CHARACTER}" * 2 + "k" * 13


def test_process_follows_its_cgroup(tmp_path):
    """A process that is moved to another cgroup is placed there at the next read."""
    write_process(tmp_path, 100, IN_POD)
    table = ProcessTable(tmp_path)
    table.read(dict.fromkeys([100], 20.0))
    write_process(tmp_path, 100, IN_OTHER_POD)
    assert table.read(dict.fromkeys([100], 25.0))[100].pod_uid == OTHER_UID


@pytest.mark.parametrize("own", [UID, None])
def test_sibling_is_in_the_own_pod_as_far_as_that_is_known(tmp_path, own):
    """A container of the own pod gets the own uid; without it, it is in a pod, and which is not known."""
    write_process(tmp_path, 100, SIBLING)
    expected = placed() if own else replace(placed(), known=False, pod_uid=None)
    assert {100: expected} == ProcessTable(tmp_path, own_pod_uid=own).read(dict.fromkeys([100], 20.0))


def test_own_uid_is_given_to_siblings_only(tmp_path):
    """The own uid is not given to processes of the host or of other pods."""
    write_process(tmp_path, 100, "/init.scope")
    write_process(tmp_path, 101, IN_OTHER_POD)
    places = ProcessTable(tmp_path, own_pod_uid=UID).read(dict.fromkeys([100, 101], 20.0))
    assert [place.pod_uid for place in places.values()] == [None, OTHER_UID]


@pytest.mark.parametrize("name", ["absent", "file"])
def test_missing_process_table_is_an_error_with_a_remedy(tmp_path, name):
    """Without any process table the error names the path and the option, even when no pid is asked for."""
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=rf"{name}: .*; set --proc-root to a procfs"):
        ProcessTable(tmp_path / name).read(dict.fromkeys([], None))


def test_own_process_is_found_in_the_live_table():
    """In the real /proc a process that runs is known, also by the tree's own clock."""
    proc = Path("/proc")
    places = ProcessTable(proc).read(dict.fromkeys([os.getpid()], boot_seconds(proc)))
    assert places[os.getpid()].known


def test_ended_process_is_gone_from_the_live_table():
    """In the real /proc a process that has ended and been waited for is unknown."""
    child = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(child, 0)
    assert {child: unknown(child)} == ProcessTable(Path("/proc")).read(dict.fromkeys([child], None))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1234.56 999.00\n", 1234.56), ("7", 7.0), ("", None), ("soon", None), ("inf 0", None), ("nan", None)],
)
def test_boot_clock_of_a_tree(tmp_path, text, seconds):
    """The boot clock is the tree's first figure, and unknown where that is not one."""
    (tmp_path / "uptime").write_text(text)
    assert seconds == boot_seconds(tmp_path)


def test_boot_clock_of_a_tree_without_one(tmp_path):
    """The clock of this machine does not stand in for that of a recorded tree."""
    assert boot_seconds(tmp_path) is None
    assert boot_seconds(tmp_path / "absent") is None


def test_boot_clock_of_this_machine():
    """The live boot clock is the kernel's."""
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert boot_seconds(Path("/proc")) == pytest.approx(now, abs=5)


@pytest.mark.slow
@settings(deadline=None)
@given(stat=st.binary(max_size=300), cgroup=st.binary(max_size=300))
def test_any_bytes_are_read_without_raising(tmp_path_factory, stat, cgroup):
    """Files of any content give an answer for the pid."""
    root = tmp_path_factory.mktemp("proc")
    (root / "100").mkdir()
    (root / "100" / "stat").write_bytes(stat)
    (root / "100" / "cgroup").write_bytes(cgroup)
    assert ProcessTable(root).read(dict.fromkeys([100], 20.0))[100].pid == 100
