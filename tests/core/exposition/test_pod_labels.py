"""The labels of pods: named as in kube-state-metrics, on a series of their own, and only on request."""

import csv
import io
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.exposition import Exposition, Format
from exporter.formats.json_csv import snapshot_csv, snapshot_json
from exporter.formats.labels import short_labels
from exporter.formats.text import snapshot_text
from exporter.metrics.holders import label_names
from exporter.metrics.selection import Selection
from exporter.model import ContainerRef, ContainerRow, DeviceKey, NodeRow, PodRow, Snapshot
from exporter.model.pod_labels import PodLabels
from tests.core.exposition.test_page import cached_labels

NAME = re.compile(r"label_[a-z0-9_]*")


def pod(*labels, name="nb", uid="uid-nb") -> PodRow:
    """Return a pod with these labels."""
    return PodRow(namespace="ml", name=name, uid=uid, labels=labels)


def series(page: dict) -> list[dict[str, str]]:
    """Return the labels of each series of labels."""
    return [dict(labels) for name, labels in page if name == "gpuslice_pod_labels"]


@pytest.mark.parametrize(
    ("names", "expected"),
    # kubernetes/kube-state-metrics internal/store/utils_test.go
    [
        (["app1"], ["label_app1"]),
        (["2app"], ["label_2app"]),
        ([""], ["label_"]),
        (["$app4"], ["label__app4"]),
        (["_app5"], ["label__app5"]),
        (["camelCase"], ["label_camel_case"]),
        (["snake_camelCase"], ["label_snake_camel_case"]),
        (["app.kubernetes.io/name"], ["label_app_kubernetes_io_name"]),
        (
            ["conflicting-label1", "conflicting.label1", "conflicting_label1"],
            [f"label_conflicting_label1_conflict{number}" for number in (1, 2, 3)],
        ),
        (
            ["conflicting_camelCase", "conflicting_camel_case"],
            ["label_conflicting_camel_case_conflict1", "label_conflicting_camel_case_conflict2"],
        ),
        (
            ["A.b.conflict1", "a-b", "a.b"],
            ["label_a_b_conflict1", "label_a_b_conflict2", "label_a_b_conflict3"],
        ),
        ([], []),
    ],
)
def test_label_names_are_those_of_kube_state_metrics(names, expected):
    """Characters that are not allowed become an underscore; names that become equal are numbered."""
    assert label_names(tuple(names)) == tuple(expected)


@given(names=st.lists(st.text(max_size=8), unique=True, max_size=8).map(sorted))
def test_any_names_become_different_valid_names(names):
    spelled = label_names(tuple(names))
    assert len(set(spelled)) == len(names)
    assert all(NAME.fullmatch(name) for name in spelled)


@pytest.mark.parametrize("fmt", [Format.TEXT, Format.OPENMETRICS])
def test_each_pod_has_one_series_with_its_own_labels(bare, parse, fmt):
    """Two pods with the same name differ by UID."""
    pods = (
        pod(("app.kubernetes.io/name", "notebook"), ("team", 'vi"sion')),
        pod(("team", ""), uid="uid-old"),
    )
    page = Exposition().page(replace(bare, pods=pods)).body(fmt)
    assert series(parse(page, fmt)) == [
        {
            "node": "node",
            "namespace": "ml",
            "pod": "nb",
            "pod_uid": "uid-nb",
            "label_app_kubernetes_io_name": "notebook",
            "label_team": 'vi"sion',
        },
        {"node": "node", "namespace": "ml", "pod": "nb", "pod_uid": "uid-old"},
    ]
    assert b"# TYPE gpuslice_pod_labels gauge\n" in page


def test_without_labels_there_is_no_series(full, bare, parse):
    page = Exposition().page(bare).body(Format.TEXT)
    assert b"gpuslice_pod_labels" not in page
    left_out = parse(
        Exposition(Selection(metric_set="full", dcgm_names="only")).page(full).body(Format.TEXT), Format.TEXT
    )
    assert series(left_out) == []


def test_json_has_pod_labels_under_their_own_names(full):
    assert snapshot_json(full)["pods"] == [
        {
            "namespace": "ml",
            "pod": "nb-anna",
            "pod_uid": "uid-nb-anna",
            "labels": {"app.kubernetes.io/name": "notebook", "team": "vision"},
        },
        {"namespace": "ml", "pod": "train-0", "pod_uid": "uid-train-0", "labels": {"team": "nlp"}},
    ]


def test_containers_have_the_labels_of_their_pods_as_json_and_csv(full):
    """Unknown ones, and those of pods without a selected label, are null and empty."""
    by_pod = {row["pod"]: row["pod_labels"] for row in snapshot_json(full)["containers"]}
    rows = list(csv.DictReader(io.StringIO(snapshot_csv(full))))

    assert by_pod["nb-anna"] == {"app.kubernetes.io/name": "notebook", "team": "vision"}
    assert None in by_pod.values()
    for row in rows:
        labels = by_pod[row["pod"]] or {}
        assert row["pod_labels"] == "; ".join(f"{name}={value}" for name, value in labels.items())


def test_the_uid_tells_two_pods_of_one_name_apart():
    rows = [PodRow(namespace="ml", name="a", uid=uid, labels=(("n", uid),)) for uid in ("1", "2")]
    labels = PodLabels(rows)
    known = ContainerRow(holder=ContainerRef("ml", "a", "c"), device=DeviceKey("GPU-0"), pod_uid="2")

    assert labels.of(known) == (("n", "2"),)
    assert labels.of(replace(known, pod_uid="")) == ()
    assert labels.of(replace(known, pod_uid="3")) == ()
    assert PodLabels(rows[:1]).of(replace(known, pod_uid="")) == (("n", "1"),)


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        ((), ""),
        ((("app.kubernetes.io/name", "train"), ("team", "nlp")), "name=train team=nlp"),
        ((("a/name", "1"), ("b/name", "2")), "a/name=1 b/name=2"),
        (tuple((f"l{number}", "x") for number in range(5)), "l0=x l1=x l2=x +2"),
        ((("k", "v" * 63),), f"k={'v' * 37}…"),
    ],
)
def test_short_labels_are_few_and_short(labels, text):
    assert short_labels(labels) == text


def test_the_text_has_a_column_of_labels_if_there_are_any(full):
    labelled, bare = (snapshot_text(each, now=full.timestamp) for each in (full, replace(full, pods=())))

    assert "LABELS" not in bare
    assert "name=notebook team=vision" in labelled
    assert next(line for line in labelled.splitlines() if line.startswith("    HOLDER")).endswith("LABELS")


@given(labels=st.lists(st.tuples(st.text(), st.text()), max_size=6).map(tuple))
def test_any_labels_are_safe_in_text_and_csv(labels):
    """Control characters are escaped, and no cell begins a formula."""
    row = ContainerRow(holder=ContainerRef("ml", "a", "c"), device=DeviceKey("GPU-0"), pod_uid="u")
    pods = (PodRow(namespace="ml", name="a", uid="u", labels=labels),)
    shown = Snapshot(timestamp=0.0, sequence=1, node=NodeRow(name="n"), containers=(row,), pods=pods)

    assert snapshot_text(shown, now=0.0).replace("\n", "").isprintable()
    (cells,) = csv.DictReader(io.StringIO(snapshot_csv(shown), newline=""))
    assert not cells["pod_labels"].startswith(("=", "+", "-", "@", "\t", "\r"))
    assert cells["state"] == "unknown"


def test_label_strings_are_cached_as_long_as_the_pod_exists(bare):
    exposition = Exposition()
    labelled = replace(bare, pods=(pod(("team", "vision")),))
    exposition.page(bare).body(Format.TEXT)
    alone = cached_labels(exposition)
    exposition.page(labelled).body(Format.TEXT)
    assert cached_labels(exposition) == alone + 1
    for _ in range(2):
        exposition.page(bare).body(Format.TEXT)
    assert cached_labels(exposition) == alone
