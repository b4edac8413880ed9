"""Whether pids under a root mean the same to the driver."""

import os
from pathlib import Path

import pytest

from exporter.workloads.pid_namespace import MACHINE, counts_machine_pids, is_recorded, why_no_view
from tests.core.workloads.tree import write_process

UID = "1f8e2b60-90aa-4c3d-8e21-0b7d55c0ffee"
OTHER_UID = "77777777-1111-2222-3333-444444444444"
ID = "c0de" * 16
NODE_ID = "beef" * 16
OWN = f"/kubepods/pod{UID}/{ID}"
OTHER = f"/kubepods/pod{OTHER_UID}/{NODE_ID}"

MISSING = "host pid namespace missing: set hostPID: true"


def write_self(
    root: Path, *, cgroup: str = "/", pids: str | None = None, namespace: int = 4026532999
) -> None:
    """Write the reader's own process; by default in a pid namespace that is not the machine's."""
    pids = str(os.getpid()) if pids is None else pids
    write_process(root, "self", cgroup)
    (root / "self" / "status").write_text(f"Name:\tpython\nPid:\t{os.getpid()}\nNSpid:\t{pids}\n")
    (root / "self" / "ns").mkdir(exist_ok=True)
    (root / "self" / "ns" / "pid").symlink_to(f"pid:[{namespace}]")


def assert_refused(root: Path, reason: str) -> None:
    """Check that the pids under ``root`` are not trusted, for this reason."""
    assert reason in why_no_view(root)


@pytest.mark.parametrize("name", ["absent", "file"])
def test_a_root_that_is_not_a_directory_is_refused_with_its_option(tmp_path, name):
    (tmp_path / "file").touch()
    assert_refused(tmp_path / name, f"{name}: ")
    assert_refused(tmp_path / name, "--proc-root")


def test_a_directory_without_processes_is_refused(tmp_path):
    (tmp_path / "self").mkdir()
    (tmp_path / "uptime").write_text("1 1")
    assert_refused(tmp_path, "no processes under")


@pytest.mark.parametrize("with_self", [True, False])
@pytest.mark.parametrize(
    "cgroup",
    [OWN, f"/../cri-containerd-{ID}.scope", f"4:memory:{OWN}\n0::/system.slice/containerd.service\n"],
)
def test_a_pid_1_in_a_pod_means_the_pid_namespace_of_a_pod(tmp_path, cgroup, with_self):
    """Its own pod included, in a live or a recorded tree."""
    write_process(tmp_path, 1, cgroup)
    write_process(tmp_path, 2, "/", comm="kthreadd")
    if with_self:
        write_self(tmp_path, cgroup="/", namespace=4026531836)
    assert_refused(tmp_path, MISSING)


def test_a_pid_1_in_the_readers_container_means_its_pid_namespace(tmp_path):
    write_process(tmp_path, 1, f"/docker/{ID}")
    write_process(tmp_path, 30, OTHER)
    write_self(tmp_path, cgroup=f"/docker/{ID}/sub")
    assert_refused(tmp_path, MISSING)


def test_a_recorded_tree_is_accepted(tmp_path):
    """It does not contain the reader."""
    write_process(tmp_path, 1, "/init.scope")
    write_process(tmp_path, 100, OWN)
    assert why_no_view(tmp_path) == ""


def test_a_recorded_tree_may_lack_pid_1(tmp_path):
    """It may have the processes of the GPUs only."""
    write_process(tmp_path, 100, OWN)
    assert why_no_view(tmp_path) == ""


def test_a_recorded_node_that_is_a_container_is_accepted(tmp_path):
    write_process(tmp_path, 1, f"/docker/{NODE_ID}/init.scope")
    assert why_no_view(tmp_path) == ""


@pytest.mark.parametrize("cgroup", ["/", "4:memory:/\n0::/\n"])
def test_a_recorded_pid_1_at_the_root_ran_in_its_readers_container(tmp_path, cgroup):
    write_process(tmp_path, 1, cgroup)
    write_process(tmp_path, 100, "/init.scope")
    assert_refused(tmp_path, MISSING)


@pytest.mark.parametrize("pids", ["", "1", "4242\t{}", "{}\t7", "x"])
def test_a_procfs_in_which_the_reader_has_another_pid_is_refused(tmp_path, pids):
    write_process(tmp_path, 1, "/init.scope")
    write_process(tmp_path, 2, "/", comm="kthreadd")
    write_self(tmp_path, pids=pids.format(os.getpid()), namespace=4026531836)
    assert_refused(tmp_path, "shows another pid namespace than this process's, in which NVML answers")


def test_a_procfs_in_which_the_reader_does_not_exist_is_refused(tmp_path):
    """Its link to the reader leads nowhere; it is not a recorded tree."""
    write_process(tmp_path, 1, "/init.scope")
    (tmp_path / "self").symlink_to("4711")
    assert_refused(tmp_path, "another pid namespace")


def test_the_initial_pid_namespace_is_the_nodes(tmp_path):
    """By its number."""
    write_process(tmp_path, 1, "/")
    write_self(tmp_path, namespace=4026531836)
    assert why_no_view(tmp_path) == ""


def test_kernel_threads_prove_the_nodes_namespace(tmp_path):
    """If the link of the namespace is not readable."""
    write_process(tmp_path, 1, "/../../init.scope")
    write_process(tmp_path, 2, "/", comm="kthreadd")
    write_self(tmp_path)
    (tmp_path / "self" / "ns" / "pid").unlink()
    assert why_no_view(tmp_path) == ""


@pytest.mark.parametrize("own", ["/", f"/docker/{NODE_ID}{OWN}"])
def test_processes_of_other_pods_prove_the_view_of_a_nested_node(tmp_path, own):
    write_process(tmp_path, 1, f"/docker/{NODE_ID}/init.scope")
    write_process(tmp_path, 50, f"/docker/{NODE_ID}{OTHER}")
    write_self(tmp_path, cgroup=own)
    assert why_no_view(tmp_path) == ""


def test_processes_of_the_own_pod_prove_nothing(tmp_path):
    """Nor do those outside pods or unreadable ones."""
    write_process(tmp_path, 1, "/init.scope")
    write_process(tmp_path, 50, OWN)
    write_process(tmp_path, 51, f"/../{ID}")
    (tmp_path / "52").mkdir()
    write_self(tmp_path, cgroup=OWN)
    assert_refused(tmp_path, MISSING)


def test_a_pod_without_host_pid_is_refused(tmp_path):
    """The usual mistake: all visible processes are at the root."""
    write_process(tmp_path, 1, "/")
    write_process(tmp_path, 7, "/")
    write_self(tmp_path)
    assert_refused(tmp_path, MISSING)


def test_the_process_table_of_this_machine_can_be_judged():
    reason = why_no_view(Path("/proc"))
    assert reason == "" or "pid namespace" in reason


@pytest.mark.parametrize("link", [True, False])
def test_pids_are_the_machines_in_its_first_namespace_or_in_a_recorded_tree(tmp_path: Path, link: bool):
    """The first namespace is recognised by its number or by kernel threads."""
    assert is_recorded(tmp_path)
    assert counts_machine_pids(tmp_path)
    namespace = tmp_path / "30" / "ns"
    namespace.mkdir(parents=True)
    (tmp_path / "self").symlink_to("30") if link else (tmp_path / "30").rename(tmp_path / "self")
    assert not is_recorded(tmp_path)
    assert not counts_machine_pids(tmp_path)
    (tmp_path / "2").mkdir()
    (tmp_path / "2/comm").write_text("kthreadd\n")
    assert counts_machine_pids(tmp_path)
    place = (tmp_path / "self").resolve() / "ns/pid"
    place.symlink_to("pid:[4026532999]")
    assert not counts_machine_pids(tmp_path)
    place.unlink()
    place.symlink_to(MACHINE)
    assert counts_machine_pids(tmp_path)


def test_an_unreadable_tree_does_not_count_as_recorded(tmp_path: Path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert not is_recorded(loop)
    assert not counts_machine_pids(loop)
    (tmp_path / "file").touch()
    assert is_recorded(tmp_path / "file")
