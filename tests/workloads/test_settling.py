"""What the objects of pods tell of processes that their cgroups do not."""

from dataclasses import replace

import pytest

from exporter.model import PodIdentity, ProcessPlace, Workloads
from exporter.workloads.places import place_by_pods
from exporter.workloads.processes import ProcessTable
from tests.workloads.tree import write_process

TRAIN, OWN = "11111111-2222-3333-4444-555555555555", "77777777-1111-2222-3333-444444444444"
INNER = "99999999-0000-1111-2222-333333333333"
MAIN, SIDE, EXPORTER, NESTED = "a" * 64, "b" * 64, "c" * 64, "d" * 64


def pod(uid, name, **containers) -> PodIdentity:
    """Return a pod with the ids of its containers."""
    ids = {container_id: container for container, container_id in containers.items()}
    return PodIdentity(uid=uid, namespace="ml", name=name, containers=tuple(containers), container_ids=ids)


PODS = (pod(TRAIN, "train", main=MAIN, side=SIDE), pod(OWN, "gpuslice", exporter=EXPORTER))
PLACED = ProcessPlace(pid=100, known=True, pod_uid=TRAIN, container_id=MAIN, command="python")
UNKNOWN = ProcessPlace(pid=100, known=False)


def place(tmp_path, path, pods=PODS) -> ProcessPlace:
    """Return where the process of a path runs, as the pods tell it."""
    write_process(tmp_path, 100, path)
    table = ProcessTable(tmp_path, own_pod_uid=OWN)
    found = Workloads(
        places=table.read({100: None}),
        pods=None if pods is None else {each.uid: each for each in pods},
        process_view=True,
    )
    return place_by_pods(found, OWN).places[100]


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
def test_a_kubelet_without_cgroups_of_pods(tmp_path, path):
    """The container's id is in the object of its pod: it is neither the reader's own nor the host's."""
    assert place(tmp_path, path) == PLACED


@pytest.mark.parametrize("path", [f"/k8s.io/{NESTED}", f"/../{NESTED}", f"/../crio-{NESTED}.scope"])
def test_a_container_that_no_pod_has_is_in_a_pod_that_is_not_known(tmp_path, path):
    """It may have come since the pods were told."""
    assert not place(tmp_path, path).known


def test_containers_beside_the_reader_are_its_own_where_no_ids_are_told(tmp_path):
    """As by the names of folders of logs."""
    names = tuple(replace(each, container_ids={}) for each in PODS)
    assert place(tmp_path, f"/../{EXPORTER}", names).pod_uid == OWN
    assert place(tmp_path, f"/../{EXPORTER}", None).pod_uid == OWN
    assert place(tmp_path, f"/../{EXPORTER}").pod_uid == OWN


def test_a_pod_in_a_pod_is_the_outer_one(tmp_path):
    """The node's kubelet knows nothing of pods that a kubelet in one of its own has started."""
    path = f"/kubepods/burstable/pod{TRAIN}/{MAIN}/kubepods/besteffort/pod{INNER}/{NESTED}"
    assert place(tmp_path, path) == PLACED
    known = (*PODS, pod(INNER, "inner", main=NESTED))
    assert place(tmp_path, path, known).pod_uid == INNER


def test_a_pod_of_a_node_that_is_a_container_is_its_own(tmp_path):
    """The pods around the node are another cluster's, of which this one knows nothing."""
    path = f"/kubepods/pod{INNER}/{NESTED}/kubelet/kubepods/burstable/pod{TRAIN}/{MAIN}"
    assert (place(tmp_path, path).pod_uid, place(tmp_path, path).container_id) == (TRAIN, MAIN)
    unnamed = place(tmp_path, path, PODS[1:])
    assert (unnamed.known, unnamed.pod_uid) == (True, TRAIN)


def test_what_is_sure_stays_as_it_is(tmp_path):
    """A process of the host, and one whose pod is known."""
    assert place(tmp_path, "/system.slice/x.service").pod_uid is None
    assert place(tmp_path, f"/kubepods/burstable/pod{TRAIN}/{MAIN}") == PLACED
    gone = Workloads(places={100: UNKNOWN}, pods={each.uid: each for each in PODS}, process_view=True)
    assert place_by_pods(gone, OWN) is gone
