"""What a review of all systems together found: one bad part costs itself, and nothing is counted twice."""

import logging

from exporter.model import Allocation, ContainerRef, Problem
from exporter.sharing.base.view import MOST_LINES, Objections
from exporter.sharing.gpu_manager import read_vcuda
from tests.attribution.build import UUID, gpu
from tests.sharing.build import pod, pods, resolve, roots_at

POD, OTHER = ("00000000-0000-0000-0000-00000000000a", "00000000-0000-0000-0000-00000000000b")
ONE_GPU_TWICE = (
    '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"100"}},'
    '{"minor":0,"resources":{"koordinator.sh/gpu-core":"100"}}]}'
)


def test_a_thing_that_changes_how_it_is_bad_counts_once_while_it_is_bad(caplog):
    """Whoever writes another bad annotation for every poll fills neither the log nor the counter."""
    caplog.set_level(logging.WARNING)
    objections = Objections()
    for number in range(50):
        objections.turn([Problem("hami_file", "a.cache", f"begins with {number}")])
    assert objections.counts == {"hami_file": 1}
    assert len(caplog.records) == 1 < MOST_LINES
    objections.turn([])
    objections.turn([Problem("hami_file", "a.cache", "begins with 0")])
    assert objections.counts == {"hami_file": 2}


def test_several_faults_of_one_thing_count_each():
    """What is wrong with one annotation in two ways is told in both, and once."""
    objections = Objections()
    faults = [Problem("gpushare_annotation", "ml/a", text) for text in ("no number", "out of bounds")]
    objections.turn(faults)
    objections.turn(faults)
    assert objections.counts == {"gpushare_annotation": 2}


def test_a_folder_of_a_pod_that_cannot_be_listed_costs_that_pod_only(tmp_path):
    """The containers of the pods after it are read all the same."""
    (tmp_path / POD).symlink_to(POD)
    folder = tmp_path / OTHER / "main"
    folder.mkdir(parents=True)
    (folder / "vcuda.config").write_bytes(bytes(8240))
    found = read_vcuda(roots_at(vcuda=tmp_path))
    assert [each.pod_uid for each in found.containers] == [OTHER]
    assert [each.about for each in found.problems] == [str(tmp_path / POD)]


def test_a_gpu_that_koordinator_gives_twice_to_a_pod_is_an_annotation_that_cannot_be_read():
    """Nobody holds two of one GPU; the pod counts with what cannot be read."""
    objections = Objections()
    annotations = {"scheduling.koordinator.sh/device-allocated": ONE_GPU_TWICE}
    found = resolve(gpu(), pods=pods(pod("a", annotations)), objections=objections)
    assert found.holdings == ()
    assert objections.counts == {"koordinator_annotation": 1}


def test_an_annotation_of_koordinator_about_no_gpu_of_this_node_hides_no_holding():
    """Whoever makes a pod may write it; what the kubelet gave to the pod is held."""
    annotations = {"scheduling.koordinator.sh/device-allocated": '{"gpu":[{"minor":77}]}'}
    holder = ContainerRef("ml", "a", "main")
    found = resolve(gpu(), [Allocation(holder, "nvidia.com/gpu", UUID)], pods=pods(pod("a", annotations)))
    assert [(each.holder, each.resource) for each in found.holdings] == [(holder, "nvidia.com/gpu")]
    assert found.unresolved == {"koordinator.sh/gpu": 1}
