"""What a review of all systems together found: one bad part costs itself, and nothing is counted twice."""

import logging

from exporter.model import Allocation, ContainerRef, Problem
from exporter.sharing.base.view import MOST_LINES
from exporter.sharing.gpu_manager import read_vcuda
from tests.core.attribution.build import UUID, gpu
from tests.core.sharing.build import pod, pods, resolve, roots_at, rows

POD, OTHER = ("00000000-0000-0000-0000-00000000000a", "00000000-0000-0000-0000-00000000000b")
ONE_GPU_TWICE = (
    '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"100"}},'
    '{"minor":0,"resources":{"koordinator.sh/gpu-core":"100"}}]}'
)


def test_a_problem_whose_text_changes_counts_once_while_it_lasts(caplog, objections):
    """Another bad annotation in every poll fills neither the log nor the counter."""
    caplog.set_level(logging.WARNING)
    for number in range(50):
        objections.turn([Problem("hami_file", "a.cache", f"begins with {number}")])
    assert objections.counts == {"hami_file": 1}
    assert len(caplog.records) == 1 < MOST_LINES
    objections.turn([])
    objections.turn([Problem("hami_file", "a.cache", "begins with 0")])
    assert objections.counts == {"hami_file": 2}


def test_several_faults_of_one_annotation_count_each(objections):
    faults = [Problem("gpushare_annotation", "ml/a", text) for text in ("no number", "out of bounds")]
    objections.turn(faults)
    objections.turn(faults)
    assert objections.counts == {"gpushare_annotation": 2}


def test_a_folder_of_a_pod_that_cannot_be_listed_costs_that_pod_only(tmp_path):
    (tmp_path / POD).symlink_to(POD)
    folder = tmp_path / OTHER / "main"
    folder.mkdir(parents=True)
    (folder / "vcuda.config").write_bytes(bytes(8240))
    files = read_vcuda(roots_at(vcuda=tmp_path))
    assert [file.pod_uid for file in files.containers] == [OTHER]
    assert [problem.about for problem in files.problems] == [str(tmp_path / POD)]


def test_one_gpu_twice_in_an_annotation_of_koordinator_is_malformed(objections):
    annotations = {"scheduling.koordinator.sh/device-allocated": ONE_GPU_TWICE}
    holdings = resolve(gpu(), pods=pods(pod("a", annotations)), objections=objections)
    assert holdings.holdings == ()
    assert objections.counts == {"koordinator_annotation": 1}


def test_an_annotation_of_koordinator_for_an_unknown_gpu_hides_no_holding():
    annotations = {"scheduling.koordinator.sh/device-allocated": '{"gpu":[{"minor":77}]}'}
    holder = ContainerRef("ml", "a", "main")
    holdings = resolve(gpu(), [Allocation(holder, "nvidia.com/gpu", UUID)], pods=pods(pod("a", annotations)))
    assert rows(holdings, "holder", "resource") == [(holder, "nvidia.com/gpu")]
    assert holdings.unresolved == {"koordinator.sh/gpu": 1}
