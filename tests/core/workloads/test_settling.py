"""Places of processes by the objects of pods, if their cgroups are not enough."""

from dataclasses import replace

import pytest

from exporter.model import PodIdentity, ProcessPlace, Workloads
from exporter.workloads.places import place_by_pods
from exporter.workloads.processes import ProcessTable
from tests.core.workloads.tree import write_process

TRAIN, OWN = "11111111-2222-3333-4444-555555555555", "77777777-1111-2222-3333-444444444444"
INNER = "99999999-0000-1111-2222-333333333333"
MAIN, SIDE, EXPORTER, NESTED = "a" * 64, "b" * 64, "c" * 64, "d" * 64


def pod(uid, name, **containers) -> PodIdentity:
    """Return a pod."""
    ids = {container_id: container for container, container_id in containers.items()}
    return PodIdentity(uid=uid, namespace="ml", name=name, containers=tuple(containers), container_ids=ids)


PODS = (pod(TRAIN, "train", main=MAIN, side=SIDE), pod(OWN, "gpuslice", exporter=EXPORTER))
PLACED = ProcessPlace(pid=100, known=True, pod_uid=TRAIN, container_id=MAIN, command="python")
UNKNOWN = ProcessPlace(pid=100, known=False)


def place(tmp_path, path, pods=PODS) -> ProcessPlace:
    """Return the place of a process with this cgroup, by the pods."""
    write_process(tmp_path, 100, path)
    table = ProcessTable(tmp_path, own_pod_uid=OWN)
    workloads = Workloads(
        places=table.read({100: None}),
        pods=None if pods is None else {a_pod.uid: a_pod for a_pod in pods},
        process_view=True,
    )
    return place_by_pods(workloads, OWN).places[100]


@pytest.mark.parametrize(
    "path",
    [
        f"/k8s.io/{MAIN}",
        f"/system.slice/crio-{MAIN}.scope",
        f"/docker/{MAIN}",
        f"/../{MAIN}",
        f"/../crio-{MAIN}.scope",
    ],
)
def test_a_container_id_in_a_pods_object_places_its_processes(tmp_path, path):
    assert place(tmp_path, path) == PLACED


@pytest.mark.parametrize("path", [f"/k8s.io/{NESTED}", f"/../{NESTED}", f"/../crio-{NESTED}.scope"])
def test_a_container_of_no_known_pod_is_in_an_unknown_one(tmp_path, path):
    """It may be newer than the list of pods."""
    assert not place(tmp_path, path).known


def test_without_container_ids_siblings_are_in_the_own_pod(tmp_path):
    names = tuple(replace(a_pod, container_ids={}) for a_pod in PODS)
    assert place(tmp_path, f"/../{EXPORTER}", names).pod_uid == OWN
    assert place(tmp_path, f"/../{EXPORTER}", None).pod_uid == OWN
    assert place(tmp_path, f"/../{EXPORTER}").pod_uid == OWN


def test_of_nested_pods_the_outer_one_counts_unless_the_inner_is_known(tmp_path):
    path = f"/kubepods/burstable/pod{TRAIN}/{MAIN}/kubepods/besteffort/pod{INNER}/{NESTED}"
    assert place(tmp_path, path) == PLACED
    known = (*PODS, pod(INNER, "inner", main=NESTED))
    assert place(tmp_path, path, known).pod_uid == INNER


def test_pods_around_a_node_that_is_a_container_do_not_count(tmp_path):
    """They belong to another cluster."""
    path = f"/kubepods/pod{INNER}/{NESTED}/kubelet/kubepods/burstable/pod{TRAIN}/{MAIN}"
    assert (place(tmp_path, path).pod_uid, place(tmp_path, path).container_id) == (TRAIN, MAIN)
    unnamed = place(tmp_path, path, PODS[1:])
    assert (unnamed.known, unnamed.pod_uid) == (True, TRAIN)


def test_processes_with_a_known_place_keep_it(tmp_path):
    assert place(tmp_path, "/system.slice/x.service").pod_uid is None
    assert place(tmp_path, f"/kubepods/burstable/pod{TRAIN}/{MAIN}") == PLACED
    gone = Workloads(places={100: UNKNOWN}, pods={a_pod.uid: a_pod for a_pod in PODS}, process_view=True)
    assert place_by_pods(gone, OWN) is gone
