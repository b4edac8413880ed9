"""The files of a fake node."""

import os
from pathlib import Path

import pytest

from exporter.demo.present import present
from exporter.demo.scenario import Scenario
from exporter.demo.tree import OWN_CONTAINER_ID, Tree
from exporter.workloads.places import read_running
from tests.fake.demo.making import made, pod

TICKS = os.sysconf("SC_CLK_TCK")
UID = "a9c80282-3f6b-4d5b-84d5-a137a6668011"
LOW = "a9c80282_3f6b_4d5b_84d5_a137a6668011"
CONTAINER = "5e" * 32


def held(qos: str = "burstable") -> dict[str, object]:
    """Return a pod of known names with one process."""
    process = {"pid": 4242, "device": "{gpu:0}", "command": "python3 (train)"}
    return pod("p", process, container_id=CONTAINER) | {"uid": UID, "qos": qos}


def planted(scenario: Scenario, root: Path, t: float = 0.0) -> Tree:
    """Plant the tree of a scenario at a time, on a machine that had run for 5000 s at the start."""
    tree = Tree(scenario, root, booted=1_700_000_000.0, uptime=5000.0)
    tree.create()
    tree.step(present(scenario, t))
    return tree


def cgroup(root: Path, pid: int) -> str:
    """Return the one path in a process's cgroup file."""
    lines = (root / "proc" / str(pid) / "cgroup").read_text().splitlines()
    assert len(lines) == 1
    return lines[0]


def stat(root: Path, pid: int) -> list[str]:
    """Return the fields of a process's stat file behind its name, from the third on."""
    return (root / "proc" / str(pid) / "stat").read_text().rpartition(")")[2].split()


@pytest.mark.parametrize(
    ("style", "qos", "expected"),
    [
        (
            "systemd",
            "guaranteed",
            f"/kubepods.slice/kubepods-pod{LOW}.slice/cri-containerd-{CONTAINER}.scope",
        ),
        (
            "systemd",
            "burstable",
            f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{LOW}.slice/cri-containerd-{CONTAINER}.scope",
        ),
        (
            "crio",
            "besteffort",
            f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{LOW}.slice/crio-{CONTAINER}.scope/container",
        ),
        ("cgroupfs", "burstable", f"/kubepods/burstable/pod{UID}/{CONTAINER}"),
        ("cgroupfs", "guaranteed", f"/kubepods/pod{UID}/{CONTAINER}"),
        (
            "relative",
            "besteffort",
            f"/../../kubepods-besteffort-pod{LOW}.slice/cri-containerd-{CONTAINER}.scope",
        ),
        (
            "relative",
            "burstable",
            f"/../../../kubepods-burstable.slice/kubepods-burstable-pod{LOW}.slice/cri-containerd-{CONTAINER}.scope",
        ),
        ("relative", "guaranteed", f"/../../../kubepods-pod{LOW}.slice/cri-containerd-{CONTAINER}.scope"),
    ],
)
def test_cgroup_paths_are_those_of_the_kubelet_and_runtime(tmp_path, style, qos, expected):
    planted(made(cgroup=style, pods=[held(qos)]), tmp_path)
    assert cgroup(tmp_path, 4242) == f"0::{expected}"


def test_cgroup_v1_has_a_line_for_each_hierarchy(tmp_path):
    planted(made(cgroup="cgroupfs-v1", pods=[held()]), tmp_path)
    lines = (tmp_path / "proc/4242/cgroup").read_text().splitlines()
    assert lines[0] == f"12:memory:/kubepods/burstable/pod{UID}/{CONTAINER}"
    assert lines[-1] == "0::/"


def test_with_host_pids_pid_1_is_systemd(tmp_path):
    host = {"pid": 900, "device": "{gpu:0}", "command": "Xorg", "cgroup": "/system.slice/gdm.service"}
    planted(made(pods=[held()], host_processes=[host]), tmp_path)
    assert cgroup(tmp_path, 1) == "0::/init.scope"
    assert (tmp_path / "proc/1/comm").read_text() == "systemd\n"
    assert stat(tmp_path, 1)[19] == "0"
    assert cgroup(tmp_path, 900) == "0::/system.slice/gdm.service"
    assert sorted(path.name for path in (tmp_path / "proc").iterdir()) == [
        "1",
        "4010000",
        "4242",
        "900",
        "stat",
        "uptime",
    ]


def test_from_a_cgroup_namespace_the_host_is_above(tmp_path):
    planted(made(cgroup="relative", pods=[held()]), tmp_path)
    assert cgroup(tmp_path, 1) == "0::/../../../../init.scope"


@pytest.mark.parametrize("style", ["systemd", "relative"])
def test_without_host_pids_there_is_only_the_exporter(tmp_path, style):
    planted(made(host_pid=False, cgroup=style, pods=[held()]), tmp_path)
    assert sorted(path.name for path in (tmp_path / "proc").iterdir()) == ["1", "stat", "uptime"]
    assert (OWN_CONTAINER_ID in cgroup(tmp_path, 1)) == (style == "systemd")
    if style == "relative":
        assert cgroup(tmp_path, 1) == "0::/"


def test_the_files_of_a_process_agree(tmp_path):
    """Also with brackets in the name."""
    planted(made(pods=[held()]), tmp_path)
    folder = tmp_path / "proc/4242"
    fields = stat(tmp_path, 4242)
    assert len(fields) == 50
    assert fields[0] == "S"
    assert int(fields[19]) == (5000 - 3600) * TICKS
    assert (folder / "comm").read_text() == "python3 (train)\n"
    assert (folder / "stat").read_text().startswith("4242 (python3 (train)) S 1 ")
    status = dict(line.split(":\t", 1) for line in (folder / "status").read_text().splitlines())
    assert (status["Name"], status["Pid"], status["NSpid"]) == ("python3 (train)", "4242", "4242")
    assert "btime 1700000000" in (tmp_path / "proc/stat").read_text()


def test_uptime_follows_the_scenario(tmp_path):
    scenario = made(pods=[held()])
    planted(scenario, tmp_path, t=6)
    assert float((tmp_path / "proc/uptime").read_text().split()[0]) == 5006


def test_no_process_is_older_than_the_machine(tmp_path):
    tree = Tree(made(pods=[held()]), tmp_path, booted=0, uptime=30)
    tree.create()
    tree.step(present(made(pods=[held()]), 0))
    assert int(stat(tmp_path, 4242)[19]) == TICKS


def test_the_files_of_a_pod_are_removed_and_return_with_a_new_start_time(tmp_path):
    scenario = made(pods=[held()], faults=[{"kind": "pod_delete", "pod": "ml/p", "at": 10, "for": 20}])
    tree = planted(scenario, tmp_path)
    logs = tmp_path / "var/log/pods"
    assert (logs / f"ml_p_{UID}/main").is_dir()
    tree.step(present(scenario, 10))
    assert not (tmp_path / "proc/4242").exists()
    assert list(logs.iterdir()) == []
    tree.step(present(scenario, 31))
    assert int(stat(tmp_path, 4242)[19]) == (5000 + 30) * TICKS
    assert (logs / f"ml_p_{UID}/main").is_dir()


def test_a_reused_pid_has_another_start_time(tmp_path):
    """Its files are replaced atomically."""
    scenario = made(pods=[held()], faults=[{"kind": "process_exit", "pid": 4242, "at": 10, "for": 5}])
    tree = planted(scenario, tmp_path)
    tree.step(present(scenario, 12))
    assert not (tmp_path / "proc/4242").exists()
    tree.step(present(scenario, 20))
    assert int(stat(tmp_path, 4242)[19]) == (5000 + 15) * TICKS
    assert list(tmp_path.rglob("*.new")) == []


@pytest.mark.parametrize(("identity", "there"), [("pods_api", True), ("pod_logs", True), ("none", False)])
def test_pod_logs_exist_unless_the_scenario_has_no_source_of_names(tmp_path, identity, there):
    planted(made(identity=identity, pods=[held()]), tmp_path)
    assert (tmp_path / f"var/log/pods/ml_p_{UID}/main").exists() == there


def test_the_version_of_the_kernel_module_is_in_sysfs(tmp_path):
    """It is missing without the module."""
    planted(made(), tmp_path / "a")
    assert (tmp_path / "a/sys/module/nvidia/version").read_text() == "550.90.07\n"
    planted(made(node={"name": "n"}, gpus=[]), tmp_path / "b")
    assert not (tmp_path / "b/sys/module/nvidia").exists()
    assert (tmp_path / "b/sys/module").is_dir()


def test_a_pod_has_a_sandbox_and_each_of_its_containers_a_process(tmp_path):
    """Containers without a GPU process run too, init containers have ended."""
    held_by = pod("a", {"memory": "1 GiB", "pid": 4242}, devices={"nvidia.com/gpu": ["{gpu:0}"]})
    held_by["containers"] += [{"name": "sidecar"}, {"name": "setup", "init": True}]
    planted(made(pods=[held_by]), tmp_path)
    commands = sorted(path.read_text().strip() for path in (tmp_path / "proc").glob("4*/comm"))
    assert commands == ["pause", "python3", "sleep"]
    running = read_running(tmp_path / "proc")
    ((uid, ids),) = running.containers.items()
    assert (running.pods, len(ids)) == ({uid}, 2)
