import os
from pathlib import Path

import pytest

from exporter.workloads.pid_namespace import MACHINE, counts_machine_pids, is_recorded, why_no_view
from tests.workloads.tree import write_process

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
    """Write what the reader finds of itself; by default in a pid namespace of somebody's own."""
    pids = str(os.getpid()) if pids is None else pids
    write_process(root, "self", cgroup)
    (root / "self" / "status").write_text(f"Name:\tpython\nPid:\t{os.getpid()}\nNSpid:\t{pids}\n")
    (root / "self" / "ns").mkdir(exist_ok=True)
    (root / "self" / "ns" / "pid").symlink_to(f"pid:[{namespace}]")


def assert_refused(root: Path, reason: str) -> None:
    """Expect that the pids under ``root`` are not trusted, for this reason."""
    assert reason in why_no_view(root)


@pytest.mark.parametrize("name", ["absent", "file"])
def test_no_directory_is_no_process_table(tmp_path, name):
    """A root that is no directory is refused with its path and the option to set."""
    (tmp_path / "file").touch()
    assert_refused(tmp_path / name, f"{name}: ")
    assert_refused(tmp_path / name, "--proc-root")


def test_directory_without_processes_is_no_process_table(tmp_path):
    """A directory in which nothing is named by a number is refused."""
    (tmp_path / "self").mkdir()
    (tmp_path / "uptime").write_text("1 1")
    assert_refused(tmp_path, "no processes under")


@pytest.mark.parametrize("with_self", [True, False])
@pytest.mark.parametrize(
    "cgroup",
    [OWN, f"/../cri-containerd-{ID}.scope", f"4:memory:{OWN}\n0::/system.slice/containerd.service\n"],
)
def test_first_process_in_a_pod_means_a_pods_namespace(tmp_path, cgroup, with_self):
    """A pid 1 in a pod, the own one included, is not the node's, be the tree live or recorded."""
    write_process(tmp_path, 1, cgroup)
    write_process(tmp_path, 2, "/", comm="kthreadd")
    if with_self:
        write_self(tmp_path, cgroup="/", namespace=4026531836)
    assert_refused(tmp_path, MISSING)


def test_first_process_in_the_own_container_means_a_containers_namespace(tmp_path):
    """A pid 1 in the container that the reader runs in is not the node's."""
    write_process(tmp_path, 1, f"/docker/{ID}")
    write_process(tmp_path, 30, OTHER)
    write_self(tmp_path, cgroup=f"/docker/{ID}/sub")
    assert_refused(tmp_path, MISSING)


def test_recorded_tree_is_taken_as_it_is(tmp_path):
    """A tree without the reader in it is a recorded one and shows what it was recorded with."""
    write_process(tmp_path, 1, "/init.scope")
    write_process(tmp_path, 100, OWN)
    assert why_no_view(tmp_path) == ""


def test_recorded_tree_may_lack_the_first_process(tmp_path):
    """A tree that holds only the processes of the GPUs is taken too."""
    write_process(tmp_path, 100, OWN)
    assert why_no_view(tmp_path) == ""


def test_recorded_node_that_is_a_container_is_taken(tmp_path):
    """A pid 1 in a container but in no pod is that of a node in a container."""
    write_process(tmp_path, 1, f"/docker/{NODE_ID}/init.scope")
    assert why_no_view(tmp_path) == ""


@pytest.mark.parametrize("cgroup", ["/", "4:memory:/\n0::/\n"])
def test_recorded_first_process_at_the_root_shared_its_readers_container(tmp_path, cgroup):
    """A recorded pid 1 at the root of what its reader saw ran in that reader's container."""
    write_process(tmp_path, 1, cgroup)
    write_process(tmp_path, 100, "/init.scope")
    assert_refused(tmp_path, MISSING)


@pytest.mark.parametrize("pids", ["", "1", "4242\t{}", "{}\t7", "x"])
def test_procfs_of_another_namespace_is_refused(tmp_path, pids):
    """A process that has another number, or several, under the root is not asked by that number."""
    write_process(tmp_path, 1, "/init.scope")
    write_process(tmp_path, 2, "/", comm="kthreadd")
    write_self(tmp_path, pids=pids.format(os.getpid()), namespace=4026531836)
    assert_refused(tmp_path, "shows another pid namespace than this process's, in which NVML answers")


def test_procfs_in_which_the_reader_does_not_exist_is_refused(tmp_path):
    """A procfs of a namespace beside ours has a link to us that leads nowhere; it is not a recorded tree."""
    write_process(tmp_path, 1, "/init.scope")
    (tmp_path / "self").symlink_to("4711")
    assert_refused(tmp_path, "another pid namespace")


def test_initial_namespace_is_the_nodes(tmp_path):
    """The kernel's number of the first pid namespace proves the node's view."""
    write_process(tmp_path, 1, "/")
    write_self(tmp_path, namespace=4026531836)
    assert why_no_view(tmp_path) == ""


def test_kernel_threads_prove_the_nodes_namespace(tmp_path):
    """Where the namespace link cannot be read, the parent of kernel threads proves the node's view."""
    write_process(tmp_path, 1, "/../../init.scope")
    write_process(tmp_path, 2, "/", comm="kthreadd")
    write_self(tmp_path)
    (tmp_path / "self" / "ns" / "pid").unlink()
    assert why_no_view(tmp_path) == ""


@pytest.mark.parametrize("own", ["/", f"/docker/{NODE_ID}{OWN}"])
def test_other_pods_prove_the_view_of_a_nested_node(tmp_path, own):
    """On a node that is itself a container, seeing other pods proves that its pids are seen."""
    write_process(tmp_path, 1, f"/docker/{NODE_ID}/init.scope")
    write_process(tmp_path, 50, f"/docker/{NODE_ID}{OTHER}")
    write_self(tmp_path, cgroup=own)
    assert why_no_view(tmp_path) == ""


def test_own_pod_alone_proves_nothing(tmp_path):
    """Processes of the own pod, of no pod, and unreadable ones do not prove the node's view."""
    write_process(tmp_path, 1, "/init.scope")
    write_process(tmp_path, 50, OWN)
    write_process(tmp_path, 51, f"/../{ID}")
    (tmp_path / "52").mkdir()
    write_self(tmp_path, cgroup=OWN)
    assert_refused(tmp_path, MISSING)


def test_container_with_a_cgroup_namespace_and_without_host_pids_is_refused(tmp_path):
    """The usual mistake, a hardened pod without hostPID: all that is seen is at the root."""
    write_process(tmp_path, 1, "/")
    write_process(tmp_path, 7, "/")
    write_self(tmp_path)
    assert_refused(tmp_path, MISSING)


def test_real_process_table_is_good_or_refused_for_its_pid_namespace():
    """The /proc of this machine can be read, whatever container this test is in."""
    reason = why_no_view(Path("/proc"))
    assert reason == "" or "pid namespace" in reason


@pytest.mark.parametrize("link", [True, False])
def test_whose_numbers_a_proc_root_has(tmp_path: Path, link: bool):
    """The first namespace is known by its number, or by the kernel's own threads; a recorded tree is ours."""
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


def test_a_tree_that_cannot_be_looked_into_is_no_recorded_one(tmp_path: Path):
    """Not to know is no proof that pids are ours; a path through a file leads nowhere at all."""
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert not is_recorded(loop)
    assert not counts_machine_pids(loop)
    (tmp_path / "file").touch()
    assert is_recorded(tmp_path / "file")
