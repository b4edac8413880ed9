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
    """Give the identity of a pod whose container ids are not known."""
    return PodIdentity(uid=uid, namespace=namespace, name=name, containers=containers)


@contextmanager
def unprivileged():
    """Drop the rights of root, whom no file mode can stop."""
    user = os.geteuid()
    os.seteuid(user or 65534)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.fixture
def open_folder():
    """Give a folder that everybody may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_pods_are_listed_with_their_containers(tmp_path):
    """A directory per pod and one per container below it give namespace, name, uid and containers."""
    (tmp_path / f"team-a_train-0_{UID}" / "main").mkdir(parents=True)
    (tmp_path / f"team-a_train-0_{UID}" / "istio-proxy").mkdir()
    assert (pod(UID, "team-a", "train-0", "istio-proxy", "main"),) == read_pod_logs(tmp_path).pods


def test_static_pod_has_a_hash_for_a_uid(tmp_path):
    """A static pod is known by the hash that its cgroup carries too."""
    (tmp_path / f"kube-system_etcd-node.example.com_{STATIC}").mkdir()
    assert (pod(STATIC, "kube-system", "etcd-node.example.com"),) == read_pod_logs(tmp_path).pods


def test_order_is_by_namespace_name_and_uid(tmp_path):
    """The order does not depend on that of the directory."""
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
    """Whatever is not named like a pod is not one."""
    (tmp_path / name).mkdir()
    assert read_pod_logs(tmp_path).pods == ()


def test_files_and_links_are_ignored(tmp_path):
    """A file named like a pod, a link and a link to itself are no pods, nor are they containers."""
    (tmp_path / f"a_file_{UID}").touch()
    (tmp_path / f"a_loop_{UID}").symlink_to(f"a_loop_{UID}")
    folder = tmp_path / f"a_pod_{UID}"
    (folder / "main").mkdir(parents=True)
    (folder / "current").symlink_to("main")
    (folder / "notes").touch()
    (folder / "not a container").mkdir()
    assert (pod(UID, "a", "pod", "main"),) == read_pod_logs(tmp_path).pods


def test_links_to_docker_logs_give_container_ids(tmp_path):
    """Where docker keeps the logs, the links carry the id of each start of a container."""
    container = tmp_path / f"a_pod_{UID}" / "main"
    container.mkdir(parents=True)
    (container / "0.log").symlink_to(f"/var/lib/docker/containers/{ID}/{ID}-json.log")
    (container / "1.log").symlink_to(f"/data/docker/containers/{OTHER_ID}/{OTHER_ID}-json.log")
    (container / "2.log").symlink_to("/var/log/elsewhere.log")
    (container / "3.log").touch()
    (container / "notes").symlink_to(f"/var/lib/docker/containers/{'0' * 64}/x")
    assert read_pod_logs(tmp_path).pods[0].container_ids == {ID: "main", OTHER_ID: "main"}


@pytest.mark.parametrize("name", ["absent", "file"])
def test_unreadable_root_is_an_error_with_a_remedy(tmp_path, name):
    """A root that cannot be listed is named, together with what to do about it."""
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=rf"{name}: .*/var/log/pods there, or set --pod-log-dir"):
        read_pod_logs(tmp_path / name)


@pytest.mark.parametrize(
    ("locked", "mode", "containers"),
    [("", 0o000, ()), ("main", 0o000, ("main",)), ("main", 0o444, ("main",))],
    ids=["pod", "container", "links"],
)
def test_unreadable_directory_costs_only_what_it_holds(open_folder, locked, mode, containers):
    """A pod whose directory, or whose container's, is closed keeps its name, and its neighbour everything."""
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
    """Pods are found by uid."""
    (tmp_path / f"a_c_{UID}").mkdir()
    (tmp_path / f"a_d_{OTHER_UID}").mkdir()
    index = index_pods(read_pod_logs(tmp_path).pods)
    assert {UID: pod(UID, "a", "c"), OTHER_UID: pod(OTHER_UID, "a", "d")} == index


@pytest.mark.parametrize("youngest", [UID, OTHER_UID])
def test_of_two_pods_of_one_name_the_youngest_has_it(tmp_path, youngest):
    """What a pod left behind that was made anew under its name is not the new one's."""
    for age, uid in enumerate((youngest, OTHER_UID if youngest == UID else UID)):
        directory = tmp_path / f"a_c_{uid}"
        directory.mkdir()
        os.utime(directory, (1000 - age, 1000 - age))
    logs = read_pod_logs(tmp_path)
    assert (pod(youngest, "a", "c"),) == logs.pods
    assert logs.superseded == {UID, OTHER_UID} - {youngest}


@pytest.mark.parametrize("known", [UID, OTHER_UID])
def test_of_two_pods_of_one_name_the_one_that_is_known_has_it(tmp_path, known):
    """What is removed below the directory of the one before makes that the last to be changed."""
    for uid in (UID, OTHER_UID):
        directory = tmp_path / f"a_c_{uid}"
        directory.mkdir()
        changed = 1000 if uid == known else 2000
        os.utime(directory, (changed, changed))
    assert (pod(known, "a", "c"),) == read_pod_logs(tmp_path, {known}).pods


@pytest.mark.parametrize("known", [{UID, OTHER_UID}, {STATIC}])
def test_knowing_both_or_neither_leaves_the_name_to_the_youngest(tmp_path, known):
    """Only where one of the two is known does that decide."""
    for changed, uid in ((1000, UID), (2000, OTHER_UID)):
        directory = tmp_path / f"a_c_{uid}"
        directory.mkdir()
        os.utime(directory, (changed, changed))
    assert (pod(OTHER_UID, "a", "c"),) == read_pod_logs(tmp_path, known).pods
