"""Why a pod waits, as text for a terminal, JSON and CSV."""

import csv
import io
import json
from dataclasses import replace

from exporter.fleet.pages import openapi
from exporter.fleet.waiting import Waiting, answer_all, answer_one, narrowed
from exporter.fleet.waiting_data import COLUMNS, waiting_csv, waiting_json
from exporter.fleet.waiting_text import waiting_text, why_text
from exporter.waiting.objects import ClusterNode, NodeTerm, PodKey, Requirement, WaitingPod
from exporter.wording import TIMES, UNKNOWN
from tests.fleet.waiting_cluster import (
    BIG,
    GIB,
    NOW,
    facts,
    holder,
    node,
    objects,
    view,
    waiting_pods,
    waits,
)

HOSTILE = "=cmd|x\x1b[2J\u202e\n<script>"
ANSWER = f"""\
ml/train-7 waits 42 min for 1 {TIMES} nvidia.com/mig-3g.40gb (and 8 CPU, 64.0 GiB)
  4 nodes offer nvidia.com/mig-3g.40gb: 4 slices, all held.
  11 of 15 nodes are out: 8 by node selector zone=a, 1 without nvidia.com/mig-3g.40gb, 1 cordoned, 1
  by taint team=vision:NoSchedule.
     NEAREST                                                                     WHO IS ASKED
  1  scale down ml/notebook-7 on gpu-3, idle for 9 h 12 min                      its owner
  2  add 1 {TIMES} 3g.40gb to GPU 2 of gpu-7, at free memory slices 4-7                who partitions GPUs
       nvidia-smi mig -i 2 -cgi 3g.40gb:4 -C
     but the device plugin has to list its devices again
  3  repair GPU 5 of gpu-2 (needs reset): 2 {TIMES} nvidia.com/mig-3g.40gb of it are   on-call
     unhealthy
  would not help: GPU 0 of gpu-9 has 6 free memory slices, but no place of a 3g.40gb is free
  1 pod that waits for the same comes first, by priority, then age.

Known: pods 3 s ago, nodes 4 s ago, GPUs 12 s ago; from the Kubernetes API.
"""


def why(name: str, waiting: Waiting | None = None) -> str:
    """Return the text about one pod."""
    key = PodKey("ml", name)
    return why_text(answer_one(view(), facts(), NOW, key) if waiting is None else waiting, key, 100)


def test_the_whole_answer():
    assert why("train-7") == ANSWER
    assert max(map(len, ANSWER.splitlines())) <= 100


def _about(pod: WaitingPod, *nodes: ClusterNode) -> str:
    known = objects(nodes={each.name: each for each in nodes}, placed=(), waiting=(pod,))
    return why_text(answer_one(view(known), facts(), NOW, pod.key), pod.key, 200)


def test_a_node_that_does_not_offer_the_device_is_out_for_that_alone():
    text = _about(waits("train-7", 42), node("small", offers={"cpu": 1000}), node("large"))

    assert f"Both nodes are out: 2 without {BIG}." in text


def test_a_cluster_without_nodes_is_said_to_have_none():
    assert "The cluster has no nodes." in _about(waits("train-7", 42))
    assert "The cluster has no nodes." in _about(waits("train-7", 42, requests={"pods": 1}))


def test_what_a_node_is_short_of_is_one_reason():
    little = {BIG: 1, "cpu": 1000, "memory": GIB}

    assert "1 of 1 node is out: 1 short of cpu and memory." in _about(
        waits("train-7", 42), node("busy", offers=little)
    )


def test_a_node_that_the_affinity_does_not_name_is_out_by_that():
    named = (NodeTerm(fields=(Requirement("metadata.name", "In", ("busy",)),)),)
    busy = node("busy", offers={BIG: 0})

    assert "1 by node affinity for other nodes." in _about(
        waits("train-7", 42, selector={}, affinity=named), busy, node("other")
    )


def test_nothing_is_said_of_offers_if_no_node_is_open_to_the_pod():
    text = _about(waits("train-7", 42), node("far", "b", offers={BIG: 2}), node("shut", cordoned=True))

    assert "Both nodes are out: 1 by node selector zone=a, 1 cordoned." in text
    assert "offer" not in text


def test_a_pod_that_runs_or_is_not_there_is_said_to_be_so():
    assert why("notebook-7").startswith("ml/notebook-7 does not wait: it is on node gpu-3.\n")
    assert why("nothing").startswith("No pod ml/nothing waits: it does not exist")


def test_what_another_scheduler_does_is_not_judged():
    text = why("batch-0")

    assert "Scheduler volcano: its queues are not read here." in text
    assert "NEAREST" not in text


def test_of_a_pod_since_an_unknown_time_no_time_is_said():
    unknown = waits("train-7", 42, created=None, since=None)
    waiting = answer_all(view(objects(waiting=(unknown, waits("old", 900)))), facts(), NOW)

    assert [each.pod.key.name for each in waiting.answers or ()] == ["train-7", "old"]
    assert "ml/train-7 waits for 1 " in why("train-7", waiting)
    assert waiting_text(waiting, 100).splitlines()[1].split()[:2] == ["ml/train-7", UNKNOWN]
    pod, _ = waiting_json(waiting)["pods"]
    assert (pod["waits_seconds"], pod["pods_ahead"]) == (None, None)
    row, _ = csv.DictReader(io.StringIO(waiting_csv(waiting)))
    assert (row["pod"], row["waits_seconds"], row["pods_ahead"]) == ("train-7", "", "")


def test_what_cannot_be_judged_is_said_and_no_help_is_claimed():
    text = why("volume-0")

    assert "8 nodes may have room; not judged: volumes." in text
    assert "NEAREST" not in text


def test_unknown_pods_and_failures_are_said():
    unknown = replace(view(), objects=None, waiting=None, failures=("the API server denies access",))
    waiting = answer_all(unknown, facts(), NOW)

    for text in (waiting_text(waiting, 100), why("train-7", waiting)):
        assert "The pods of the cluster are not known." in text
        assert "! not known: the API server denies access." in text


def test_the_list_has_what_is_nearest_below_each_pod_and_stays_readable_in_a_narrow_terminal():
    """A row is of two lines at most, and what would help of one."""
    lines = waiting_text(waiting_pods(), 100).splitlines()
    (place,) = [place for place, line in enumerate(lines) if line.startswith("ml/train-7 ")]

    assert lines[0].split() == ["NAMESPACE", "/", "POD", "WAITS", "FOR", "AHEAD", "WHY"]
    assert lines[place].endswith("  all of it is held on allowed nodes")
    assert lines[place + 1] == "  nearest: scale down ml/notebook-7 on gpu-3, idle for 9 h 12 min"
    assert max(map(len, lines)) <= 100


def test_the_list_has_a_row_for_each_pod_and_counts_others():
    text = waiting_text(waiting_pods(), 140)

    rows = [line for line in text.splitlines() if line.startswith("ml/")]
    assert [row.split()[0] for row in rows][:2] == ["ml/batch-0", "ml/train-7"]
    assert "1 other pod waits without asking for a device." in text
    assert "No pod waits for a device in other." in waiting_text(narrowed(waiting_pods(), ["other"]), 100)


def test_hostile_names_stay_on_their_line():
    known = objects(
        waiting=(waits(HOSTILE, 5, owner=HOSTILE),), placed=(holder(HOSTILE, "gpu-3", ending=True),)
    )
    waiting = answer_all(view(known), facts(), NOW)

    for text in (waiting_text(waiting, 200), why(HOSTILE, waiting)):
        assert all(line.isprintable() for line in text.splitlines())
        assert "\\x1b" in text
    (row,) = csv.DictReader(io.StringIO(waiting_csv(waiting)))
    assert row["pod"].startswith("'=")
    json.loads(json.dumps(waiting_json(waiting)))


def test_the_csv_has_the_columns_and_an_empty_cell_for_what_is_unknown():
    rows = list(csv.DictReader(io.StringIO(waiting_csv(waiting_pods()))))

    by_name = {row["pod"]: row for row in rows}
    assert tuple(rows[0]) == COLUMNS
    assert by_name["train-7"]["nearest_kind"] == "idle"
    assert by_name["train-7"]["would_help"] == "true"
    assert by_name["whole-0"]["nearest"] == by_name["whole-0"]["would_help"] == ""
    assert by_name["volume-0"]["not_judged"] == "volumes"


def test_the_json_is_as_described():
    document = waiting_json(waiting_pods())
    schemas = openapi.document()["components"]["schemas"]

    (train,) = [each for each in document["pods"] if each["pod"] == "train-7"]
    assert document.keys() | {"error"} == schemas["Waiting"]["properties"].keys()
    assert train.keys() == schemas["WaitingPod"]["properties"].keys()
    assert train["ways"][0].keys() == schemas["Way"]["properties"].keys()
    assert train["offers"][0].keys() == schemas["WaitingOffer"]["properties"].keys()
    assert train["nodes_out"][0].keys() == schemas["NodesOut"]["properties"].keys()
    assert [way["age_seconds"] for way in train["ways"]] == [12.0, 12.0, 12.0]


def test_a_way_that_is_not_judged_wholly_may_not_be_said_to_help():
    waiting = waits("a", 5, unjudged=("volumes",))
    document = waiting_json(answer_all(view(objects(waiting=(waiting,))), facts(), NOW))

    assert {way["would_help"] for way in document["pods"][0]["ways"]} == {None}
    assert UNKNOWN not in json.dumps(document)
