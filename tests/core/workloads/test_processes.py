"""Places of processes by their files in a process table."""

import os
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import ProcessPlace
from exporter.workloads.processes import ProcessTable, boot_seconds
from tests.core.workloads.tree import TICKS, write_process, write_stat

UID = "1f8e2b60-90aa-4c3d-8e21-0b7d55c0ffee"
OTHER_UID = "77777777-1111-2222-3333-444444444444"
ID = "c0de" * 16
OTHER_ID = "beef" * 16
IN_POD = f"/kubepods/burstable/pod{UID}/{ID}"
IN_OTHER_POD = f"/kubepods/burstable/pod{OTHER_UID}/{OTHER_ID}"
SIBLING = f"/../cri-containerd-{ID}.scope"


def placed(pid: int = 100, command: str | None = "python") -> ProcessPlace:
    """Return the place of a process in the pod of these tests."""
    return ProcessPlace(pid=pid, known=True, pod_uid=UID, container_id=ID, command=command)


def unknown(pid: int = 100, *, ended: bool = False) -> ProcessPlace:
    """Return the place of a process that was not found."""
    return ProcessPlace(pid=pid, known=False, ended=ended)


def test_a_process_has_its_pod_and_container(tmp_path):
    write_process(tmp_path, 100, IN_POD)
    assert {100: placed()} == ProcessTable(tmp_path).read({100: 20.0})


def test_a_process_outside_all_pods_is_known_to_be_there(tmp_path):
    write_process(tmp_path, 100, "/system.slice/nvidia-persistenced.service")
    expected = ProcessPlace(pid=100, known=True, command="python")
    assert {100: expected} == ProcessTable(tmp_path).read({100: 20.0})


def test_all_pids_have_an_answer_also_next_to_invalid_ones(tmp_path):
    write_process(tmp_path, 100, IN_POD)
    places = ProcessTable(tmp_path).read(dict.fromkeys([100, 7, -1, 0, 2**70], 20.0))
    others = {pid: unknown(pid, ended=True) for pid in (7, -1, 0, 2**70)}
    assert {100: placed()} | others == places


@pytest.mark.parametrize(
    "comm", ["a b", "a) S 1 (b", "))))", "((", "", "x) Z 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1", "a\nb"]
)
def test_a_command_name_cannot_shift_the_fields_of_stat(tmp_path, comm):
    write_process(tmp_path, 100, IN_POD, start=30.0, comm=comm)
    table = ProcessTable(tmp_path)
    assert {100: placed(command=comm[:15] or None)} == table.read({100: 30.0})
    assert {100: unknown(ended=True)} == table.read({100: 29.0})


@pytest.mark.parametrize(
    ("later_ticks", "known"), [(-1, True), (0, True), (1, True), (2, False), (100_000, False)]
)
def test_a_process_younger_than_the_drivers_answer_is_another_one(tmp_path, later_ticks, known):
    """By more than a tick."""
    write_process(tmp_path, 100, IN_POD, start=50 + later_ticks / TICKS)
    assert known == ProcessTable(tmp_path).read({100: 50.0})[100].known


def test_a_reused_pid_does_not_inherit_the_place(tmp_path):
    write_process(tmp_path, 100, IN_POD, start=10)
    table = ProcessTable(tmp_path)
    table.read({100: 20.0})
    write_process(tmp_path, 100, IN_OTHER_POD, start=25)
    assert {100: unknown(ended=True)} == table.read({100: 22.0})
    assert table.read({100: 30.0})[100].pod_uid == OTHER_UID


def test_without_a_time_of_the_answer_every_live_process_counts(tmp_path):
    write_process(tmp_path, 100, IN_POD, start=1e9)
    assert {100: placed()} == ProcessTable(tmp_path).read({100: None})


def test_each_pid_is_compared_with_the_time_of_its_own_answer(tmp_path):
    for pid in (100, 101, 102):
        write_process(tmp_path, pid, IN_POD, start=25)
    places = ProcessTable(tmp_path).read({100: 20.0, 101: 30.0, 102: None})
    assert places == {100: unknown(100, ended=True), 101: placed(101), 102: placed(102)}


def test_a_pid_reused_during_the_reading_is_unknown(tmp_path):
    write_stat(tmp_path, 100, start=10)
    pipe = tmp_path / "100" / "cgroup"
    os.mkfifo(pipe)

    def take_over():
        with pipe.open("w") as file:  # opens once the reader has come as far as the cgroup
            write_stat(tmp_path, 100, start=11)
            file.write(f"0::{IN_POD}\n")

    successor = threading.Thread(target=take_over)
    successor.start()
    assert {100: unknown(ended=True)} == ProcessTable(tmp_path).read({100: 20.0})
    successor.join()


def test_a_process_that_ended_keeps_its_place_for_one_read(tmp_path):
    write_process(tmp_path, 100, IN_POD)
    table = ProcessTable(tmp_path)
    table.read({100: 20.0})
    shutil.rmtree(tmp_path / "100")
    assert {100: replace(placed(), ended=True)} == table.read({100: 25.0})
    assert {100: unknown(ended=True)} == table.read({100: 30.0})


def test_a_process_that_ended_before_the_last_read_is_unknown(tmp_path):
    write_process(tmp_path, 100, IN_POD)
    table = ProcessTable(tmp_path)
    table.read({100: 20.0})
    table.read({})
    shutil.rmtree(tmp_path / "100")
    assert {100: unknown(ended=True)} == table.read({100: 30.0})


@pytest.mark.parametrize("text", [None, "", "\n"])
@pytest.mark.parametrize(("start", "expected"), [(10, placed()), (12, unknown())])
def test_without_a_readable_cgroup_the_same_process_keeps_its_place(tmp_path, text, start, expected):
    write_process(tmp_path, 100, IN_POD, start=10)
    table = ProcessTable(tmp_path)
    table.read({100: 20.0})
    write_stat(tmp_path, 100, start=start)
    cgroup = tmp_path / "100" / "cgroup"
    cgroup.unlink() if text is None else cgroup.write_text(text)
    assert {100: expected} == table.read({100: 25.0})


def test_a_new_process_without_a_readable_cgroup_is_unknown(tmp_path):
    """It is not outside all pods."""
    write_stat(tmp_path, 100)
    (tmp_path / "100" / "cgroup").mkdir()
    assert {100: unknown()} == ProcessTable(tmp_path).read({100: 20.0})


@pytest.mark.parametrize(
    "stat",
    [
        *("", "100 (x) S 1 2 3", "100 (x) " + "a " * 50, "garbage", "100 (x"),
        f"100 (x) S {'1 ' * 18}{'9' * 400} 0",
        f"100 (x) S {'1 ' * 18}-1 0",
    ],
    ids=["empty", "short", "letters", "other", "open", "endless", "negative"],
)
def test_a_process_without_a_start_time_is_unknown(tmp_path, stat):
    """Its pid may be reused; if it is not, the process is in the pod of its cgroup."""
    write_process(tmp_path, 100, IN_POD)
    (tmp_path / "100" / "stat").write_text(stat)
    assert {100: replace(unknown(), kin=frozenset({UID}))} == ProcessTable(tmp_path).read({100: 20.0})


def test_a_zombie_at_the_root_is_unknown(tmp_path):
    """Cgroup v1 moves zombies there."""
    write_process(tmp_path, 100, "4:memory:/\n1:cpu:/\n")
    write_stat(tmp_path, 100, state="Z")
    assert {100: unknown()} == ProcessTable(tmp_path).read({100: 20.0})


@pytest.mark.parametrize("v2", ["", "0::/system.slice/containerd.service\n"], ids=["v1", "hybrid"])
@pytest.mark.parametrize(("state", "flags"), [("R", 0x4), ("D", 0x404004), ("Z", 0)])
def test_a_process_that_is_ending_keeps_its_pod(tmp_path, state, flags, v2):
    """Cgroup v1 has the root while the kernel frees it, which may take long."""
    write_process(tmp_path, 100, f"4:memory:{IN_POD}\n1:cpu:{IN_POD}\n{v2}")
    table = ProcessTable(tmp_path)
    assert {100: placed()} == table.read({100: 20.0})
    write_process(tmp_path, 100, f"4:memory:/\n1:cpu:/\n{v2}")
    write_stat(tmp_path, 100, state=state, flags=flags)
    assert {100: placed()} == table.read({100: 25.0})
    assert {100: placed()} == table.read({100: 30.0})
    assert {100: unknown()} == ProcessTable(tmp_path).read({100: 30.0})


DOCKER = f"/../../../docker/{OTHER_ID}"


@pytest.mark.parametrize("path", [DOCKER, f"/docker/{OTHER_ID}", f"/system.slice/docker-{OTHER_ID}.scope"])
def test_containers_of_docker_in_a_pod_are_the_pods(tmp_path, path):
    """On cgroup v2 they are next to all pods, and only their parents are in the pod."""
    write_process(tmp_path, 100, path, parent=90)
    write_process(tmp_path, 90, "/system.slice/docker.service", parent=80)
    write_process(tmp_path, 80, IN_POD, parent=70)
    assert {100: placed()} == ProcessTable(tmp_path).read({100: 20.0})


@pytest.mark.parametrize(
    "path", ["/docker/buildkit/f3jq1rqwbqz1vz5v1m9q2x4ac", "/user.slice/session-1.scope", "/"]
)
def test_processes_that_a_pod_started_elsewhere_are_the_pods(tmp_path, path):
    """A build of docker in a pod has a cgroup of the host, without the id of any container."""
    write_process(tmp_path, 100, path, parent=90)
    write_process(tmp_path, 90, "/system.slice/docker.service", parent=80)
    write_process(tmp_path, 80, IN_POD, parent=70)
    assert {100: placed()} == ProcessTable(tmp_path).read({100: 20.0})


def test_a_process_is_in_no_pod_only_while_all_its_ancestors_are_seen_in_none(tmp_path):
    """In each read: what an earlier read has found of the ancestors proves nothing now."""
    write_process(tmp_path, 100, "/user.slice/session-1.scope", parent=90)
    write_process(tmp_path, 90, "/user.slice/session-1.scope", parent=1)
    write_process(tmp_path, 1, "/init.scope")
    table = ProcessTable(tmp_path)
    assert table.read({100: 20.0})[100].known
    (tmp_path / "90/cgroup").unlink()
    assert not table.read({100: 25.0})[100].known


def test_a_process_whose_place_is_unknown_has_the_pods_of_its_kin(tmp_path):
    """It may be in the pod of a process that started it, or of one that it started."""
    write_process(tmp_path, 100, IN_POD, parent=90)
    write_stat(tmp_path, 90, parent=80)
    write_stat(tmp_path, 95, parent=80)
    write_process(tmp_path, 80, IN_OTHER_POD, parent=1)
    write_process(tmp_path, 1, "/init.scope")
    places = ProcessTable(tmp_path).read(dict.fromkeys((90, 95, 100), 20.0))
    assert {pid: place.kin for pid, place in places.items()} == {
        90: {UID, OTHER_UID},
        95: {OTHER_UID},
        100: frozenset(),
    }


def test_containers_of_the_hosts_docker_are_in_no_pod(tmp_path):
    """Unless a parent cannot be read."""
    write_process(tmp_path, 100, DOCKER, parent=90)
    write_process(tmp_path, 90, "/system.slice/docker.service", parent=1)
    assert not ProcessTable(tmp_path).read({100: 20.0})[100].known
    write_process(tmp_path, 1, "/init.scope")
    place = ProcessTable(tmp_path).read({100: 20.0})[100]
    assert (place.known, place.pod_uid, place.container_id) == (True, None, OTHER_ID)


def test_containers_of_docker_in_a_pod_without_a_cgroup_are_in_an_unknown_pod(tmp_path):
    """The container that started it is known."""
    write_process(tmp_path, 100, DOCKER, parent=80)
    write_process(tmp_path, 80, f"/k8s.io/{ID}", parent=1)
    write_process(tmp_path, 1, "/init.scope")
    expected = replace(placed(), known=False, pod_uid=None)
    assert {100: expected} == ProcessTable(tmp_path).read({100: 20.0})


def test_a_circle_of_parents_ends(tmp_path):
    """As with reused pids."""
    write_process(tmp_path, 100, DOCKER, parent=90)
    write_process(tmp_path, 90, "/system.slice/docker.service", parent=90)
    assert not ProcessTable(tmp_path).read({100: 20.0})[100].known


@pytest.mark.parametrize("path", [f"/k8s.io/{ID}", f"/system.slice/crio-{ID}.scope"])
def test_without_cgroups_of_pods_a_container_is_in_an_unknown_pod(tmp_path, path):
    """Objects of pods have its id."""
    write_process(tmp_path, 100, path)
    expected = ProcessPlace(pid=100, known=False, container_id=ID, command="python")
    assert {100: expected} == ProcessTable(tmp_path).read({100: 20.0})


def test_a_zombie_keeps_its_place(tmp_path):
    """By the previous read, or by its cgroup."""
    write_process(tmp_path, 100, IN_POD)
    table = ProcessTable(tmp_path)
    write_stat(tmp_path, 100, state="Z")
    assert {100: placed()} == table.read({100: 20.0})
    (tmp_path / "100" / "cgroup").write_text("1:cpu:/\n")
    assert {100: placed()} == table.read({100: 25.0})


def test_a_process_that_renames_itself_has_its_new_name(tmp_path):
    write_process(tmp_path, 100, IN_POD)
    table = ProcessTable(tmp_path)
    table.read({100: 20.0})
    write_stat(tmp_path, 100, comm="VLLM::EngineCore")
    assert table.read({100: 20.0})[100].command == "VLLM::EngineCor"


def test_a_reused_pid_does_not_inherit_the_name(tmp_path):
    write_process(tmp_path, 100, IN_POD, comm="train")
    table = ProcessTable(tmp_path)
    assert table.read({100: 20.0})[100].command == "train"
    write_process(tmp_path, 100, IN_POD, start=50.0, comm="other")
    assert table.read({100: 20.0})[100].command is None


def test_a_name_is_text_of_limited_length(tmp_path):
    write_process(tmp_path, 100, IN_POD)
    stat = tmp_path / "100/stat"
    stat.write_bytes(stat.read_bytes().replace(b"python", b"\xff\xfe" + b"k" * 64))
    assert ProcessTable(tmp_path).read({100: None})[100].command == "\N{REPLACEMENT CHARACTER}" * 2 + "k" * 13


def test_a_process_that_moves_to_another_cgroup_has_its_new_place(tmp_path):
    write_process(tmp_path, 100, IN_POD)
    table = ProcessTable(tmp_path)
    table.read({100: 20.0})
    write_process(tmp_path, 100, IN_OTHER_POD)
    assert table.read({100: 25.0})[100].pod_uid == OTHER_UID


@pytest.mark.parametrize("own", [UID, None])
def test_a_sibling_is_in_the_own_pod_or_in_an_unknown_one(tmp_path, own):
    write_process(tmp_path, 100, SIBLING)
    expected = placed() if own else replace(placed(), known=False, pod_uid=None)
    assert {100: expected} == ProcessTable(tmp_path, own_pod_uid=own).read({100: 20.0})


def test_only_siblings_have_the_own_uid(tmp_path):
    write_process(tmp_path, 100, "/init.scope")
    write_process(tmp_path, 101, IN_OTHER_POD)
    places = ProcessTable(tmp_path, own_pod_uid=UID).read(dict.fromkeys([100, 101], 20.0))
    assert [place.pod_uid for place in places.values()] == [None, OTHER_UID]


@pytest.mark.parametrize("name", ["absent", "file"])
def test_a_missing_process_table_is_an_error_with_a_remedy(tmp_path, name):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=rf"{name}: .*; set --proc-root to a procfs"):
        ProcessTable(tmp_path / name).read({})


def test_the_own_process_is_found_in_proc():
    proc = Path("/proc")
    places = ProcessTable(proc).read(dict.fromkeys([os.getpid()], boot_seconds(proc)))
    assert places[os.getpid()].known


def test_a_process_that_ended_is_unknown_in_proc():
    child = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(child, 0)
    assert {child: unknown(child, ended=True)} == ProcessTable(Path("/proc")).read({child: None})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1234.56 999.00\n", 1234.56), ("7", 7.0), ("", None), ("soon", None), ("inf 0", None), ("nan", None)],
)
def test_the_boot_clock_is_the_first_number_of_uptime(tmp_path, text, seconds):
    (tmp_path / "uptime").write_text(text)
    assert seconds == boot_seconds(tmp_path)


def test_a_tree_without_uptime_has_no_boot_clock(tmp_path):
    assert boot_seconds(tmp_path) is None
    assert boot_seconds(tmp_path / "absent") is None


def test_the_boot_clock_of_this_machine_is_the_kernels():
    earlier = time.clock_gettime(time.CLOCK_BOOTTIME)
    shown = boot_seconds(Path("/proc"))
    # It has hundredths of seconds.
    assert earlier - 0.02 <= shown <= time.clock_gettime(time.CLOCK_BOOTTIME)


@given(stat=st.binary(max_size=300), cgroup=st.binary(max_size=300))
def test_any_bytes_are_read_without_raising(tmp_path_factory, stat, cgroup):
    root = tmp_path_factory.mktemp("proc")
    (root / "100").mkdir()
    (root / "100" / "stat").write_bytes(stat)
    (root / "100" / "cgroup").write_bytes(cgroup)
    assert ProcessTable(root).read({100: 20.0})[100].pid == 100
