"""Pods by the names of their log directories."""

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from exporter.model import PodIdentity
from exporter.workloads.pod_log_dirs import index_pods, read_pod_logs

UID = "1f8e2b60-90aa-4c3d-8e21-0b7d55c0ffee"
OTHER_UID = "77777777-1111-2222-3333-444444444444"
STATIC = "0123456789abcdef0123456789abcdef"
ID = "c0de" * 16
OTHER_ID = "beef" * 16


def pod(uid, namespace, name, *containers):
    """Return a pod."""
    return PodIdentity(uid=uid, namespace=namespace, name=name, containers=containers)


@contextmanager
def unprivileged():
    """Drop the rights of root, which ignores file modes."""
    user = os.geteuid()
    os.seteuid(user or 65534)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.fixture
def open_folder():
    """Return a folder that all users may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_pods_are_listed_with_their_containers(tmp_path):
    (tmp_path / f"team-a_train-0_{UID}" / "main").mkdir(parents=True)
    (tmp_path / f"team-a_train-0_{UID}" / "istio-proxy").mkdir()
    assert (pod(UID, "team-a", "train-0", "istio-proxy", "main"),) == read_pod_logs(tmp_path).pods


def test_a_static_pod_has_a_hash_as_its_uid(tmp_path):
    """As in its cgroup."""
    (tmp_path / f"kube-system_etcd-node.example.com_{STATIC}").mkdir()
    assert (pod(STATIC, "kube-system", "etcd-node.example.com"),) == read_pod_logs(tmp_path).pods


def test_pods_are_in_the_order_of_namespace_name_and_uid(tmp_path):
    for name in (f"b_a_{UID}", f"a_z_{UID}", f"a-a_b_{STATIC}", f"a_c_{UID}"):
        (tmp_path / name).mkdir()
    expected = [
        pod(UID, "a", "c"),
        pod(UID, "a", "z"),
        pod(STATIC, "a-a", "b"),
        pod(UID, "b", "a"),
    ]
    assert expected == list(read_pod_logs(tmp_path).pods)


@pytest.mark.parametrize(
    "name",
    [
        "lost+found",
        f"team-a_train-0_{UID[:-1]}",
        f"team-a_train-0_{UID}0",
        f"team-a_train_0_{UID}",
        f"team-a__{UID}",
        f"_train_{UID}",
        f"train_{UID}",
        "team-a_train-0_",
        f"team-a_train-0_{STATIC}\n",
        f"team-a_train\udcff_{UID}",
    ],
)
def test_other_directories_are_ignored(tmp_path, name):
    (tmp_path / name).mkdir()
    assert read_pod_logs(tmp_path).pods == ()


def test_files_and_links_are_ignored(tmp_path):
    (tmp_path / f"a_file_{UID}").touch()
    (tmp_path / f"a_loop_{UID}").symlink_to(f"a_loop_{UID}")
    folder = tmp_path / f"a_pod_{UID}"
    (folder / "main").mkdir(parents=True)
    (folder / "current").symlink_to("main")
    (folder / "notes").touch()
    (folder / "not a container").mkdir()
    assert (pod(UID, "a", "pod", "main"),) == read_pod_logs(tmp_path).pods


def test_links_to_logs_of_docker_have_container_ids(tmp_path):
    """One for each start of a container."""
    container = tmp_path / f"a_pod_{UID}" / "main"
    container.mkdir(parents=True)
    (container / "0.log").symlink_to(f"/var/lib/docker/containers/{ID}/{ID}-json.log")
    (container / "1.log").symlink_to(f"/data/docker/containers/{OTHER_ID}/{OTHER_ID}-json.log")
    (container / "2.log").symlink_to("/var/log/elsewhere.log")
    (container / "3.log").touch()
    (container / "notes").symlink_to(f"/var/lib/docker/containers/{'0' * 64}/x")
    assert read_pod_logs(tmp_path).pods[0].container_ids == {ID: "main", OTHER_ID: "main"}


@pytest.mark.parametrize("name", ["absent", "file"])
def test_an_unreadable_root_is_an_error_with_a_remedy(tmp_path, name):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=rf"{name}: .*/var/log/pods there, or set --pod-log-dir"):
        read_pod_logs(tmp_path / name)


@pytest.mark.parametrize(
    ("locked", "mode", "containers"),
    [("", 0o000, ()), ("main", 0o000, ("main",)), ("main", 0o444, ("main",))],
    ids=["pod", "container", "links"],
)
def test_an_unreadable_directory_hides_only_its_own_content(open_folder, locked, mode, containers):
    for name in (f"a_closed_{UID}", f"a_open_{OTHER_UID}"):
        (open_folder / name / "main").mkdir(parents=True)
        link = open_folder / name / "main" / "0.log"
        link.symlink_to(f"/var/lib/docker/containers/{ID}/{ID}-json.log")
    closed = open_folder / f"a_closed_{UID}" / locked
    closed.chmod(mode)
    with unprivileged():
        pods = read_pod_logs(open_folder).pods
    closed.chmod(0o755)
    assert pods[0] == pod(UID, "a", "closed", *containers)
    assert pods[1].container_ids == {ID: "main"}


def test_pods_are_indexed_by_uid(tmp_path):
    (tmp_path / f"a_c_{UID}").mkdir()
    (tmp_path / f"a_d_{OTHER_UID}").mkdir()
    index = index_pods(read_pod_logs(tmp_path).pods)
    assert {UID: pod(UID, "a", "c"), OTHER_UID: pod(OTHER_UID, "a", "d")} == index


@pytest.mark.parametrize("youngest", [UID, OTHER_UID])
def test_of_two_pods_with_one_name_the_youngest_counts(tmp_path, youngest):
    """The other directory was left behind by a deleted pod."""
    for age, uid in enumerate((youngest, OTHER_UID if youngest == UID else UID)):
        directory = tmp_path / f"a_c_{uid}"
        directory.mkdir()
        os.utime(directory, (1000 - age, 1000 - age))
    logs = read_pod_logs(tmp_path)
    assert (pod(youngest, "a", "c"),) == logs.pods
    assert logs.superseded == {UID, OTHER_UID} - {youngest}


@pytest.mark.parametrize("known", [UID, OTHER_UID])
def test_of_two_pods_with_one_name_the_known_one_counts(tmp_path, known):
    """Removing files from the old directory makes it the last changed."""
    for uid in (UID, OTHER_UID):
        directory = tmp_path / f"a_c_{uid}"
        directory.mkdir()
        changed = 1000 if uid == known else 2000
        os.utime(directory, (changed, changed))
    assert (pod(known, "a", "c"),) == read_pod_logs(tmp_path, {known}).pods


@pytest.mark.parametrize("known", [{UID, OTHER_UID}, {STATIC}])
def test_if_both_or_neither_are_known_the_youngest_counts(tmp_path, known):
    for changed, uid in ((1000, UID), (2000, OTHER_UID)):
        directory = tmp_path / f"a_c_{uid}"
        directory.mkdir()
        os.utime(directory, (changed, changed))
    assert (pod(OTHER_UID, "a", "c"),) == read_pod_logs(tmp_path, known).pods
