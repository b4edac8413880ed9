"""Files that are broken, huge or strange: what is translated, and what is listed with its place."""

import json
from typing import Any

import pytest

from exporter.translate.files import translate_file
from exporter.translate.findings import Lines
from tests.core.translate.laws import NAMES, held_file

UTIL = "DCGM_FI_DEV_GPU_UTIL"
ELSEWHERE = f"was left as it is: not a known place of an expression, with {UTIL}"
LABELS = "was left as it is: a list of labels, and Hostname is in it"
BOMB = "".join(f"a{n + 1}: &a{n + 1} [{', '.join(9 * [f'*a{n}'])}]\n" for n in range(30))


def _listed(text: str) -> list[tuple[int, str]]:
    """Return the line and the reason of each finding."""
    lines = Lines(text)
    return [(lines.number(each.place), f"{each.level}: {each.reason}") for each in held_file(text).findings]


@pytest.mark.parametrize(
    ("text", "new"),
    [
        # Anchors that contain themselves.
        ("a: &a\n  b: *a\n  expr: {}\n", 1),
        ("a: &a [*a, {{expr: {}}}]\n", 1),
        # Nine to the power of thirty aliases.
        ("a: &a0 {{expr: {}}}\n" + BOMB, 1),
        # A break, a fold and an empty line before a name, in each style.
        ("expr: '100 >\n\n  {}'\n", 1),
        ('expr: "100 > \\\n  {}"\n', 1),
        ("expr: >-\n  100 >\n\n  {}\n", 1),
        ("expr: 100 >\n\n  {}\n", 1),
        ("a:\n- expr: |2\n      {}\n    > 90\n", 1),
        ("expr:\t{}\t>\t90\n", 1),
        ("%YAML 1.1\n---\nexpr: {}\n...\n---\nexpr: {}\n", 2),
        ("expr: !!str {}\n", 1),
        ("base: &b\n  expr: {}\nx:\n  <<: *b\n", 1),
        ('{{"expr": "{}",}}', 1),
        ('{{"a": NaN, "expr": "{}"}}', 1),
    ],
)  # fmt: skip
def test_a_strange_form_is_translated_in_place(text: str, new: int) -> None:
    """Its other bytes stay, and nothing is listed."""
    done = held_file(text.format(*["DCGM_FI_DEV_GPU_UTIL"] * new))

    assert done.text == text.format(*["DCGM_FI_DEV_GPU_UTIL_RATIO * 100"] * new)
    assert (done.translated, done.findings) == (new, [])


LEFT = """\
# DCGM_FI_DEV_GPU_UTIL
{{- $q := "avg(DCGM_FI_DEV_FB_USED)" }}
{{- /* DCGM_FI_DEV_FB_FREE */}}
- alert: Hot
  expr: |
    # DCGM_FI_DEV_POWER_USAGE
    DCGM_FI_DEV_GPU_TEMP > {{ default "DCGM_FI_DEV_SLOWDOWN_TEMP" .Values.limit }}
  annotations:
    summary: 'DCGM_FI_DEV_GPU_TEMP of {{ $labels.Hostname }}' # DCGM_FI_DEV_XID_ERRORS
"""


def test_old_names_that_stay_are_listed_wherever_they_are() -> None:
    """In comments and texts as notes; a template makes expressions, so that the file is not done."""
    assert _listed(LEFT) == [
        (1, "note: a comment was left as it is, with DCGM_FI_DEV_GPU_UTIL"),
        (2, "problem: a template was left as it is, with DCGM_FI_DEV_FB_USED"),
        (3, "note: a comment was left as it is, with DCGM_FI_DEV_FB_FREE"),
        (6, "note: a string or a comment of an expression was left as it is, with DCGM_FI_DEV_POWER_USAGE"),
        (7, "problem: a template was left as it is, with DCGM_FI_DEV_SLOWDOWN_TEMP"),
        (9, "note: a text was left as it is, with DCGM_FI_DEV_GPU_TEMP"),
        (9, "note: a comment was left as it is, with DCGM_FI_DEV_XID_ERRORS"),
    ]


def test_those_in_a_document_within_a_file_have_their_line() -> None:
    inner = "".join(f"    {line}\n" for line in LEFT.splitlines())
    listed = _listed(f"kind: ConfigMap\ndata:\n  rules.yaml: |\n{inner}")

    assert [line - 3 for line, _ in listed] == [1, 2, 3, 6, 7, 9, 9]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        # The name of an autoscaler's metric is no text.
        (
            "metrics:\n- external: {metric: {name: DCGM_FI_DEV_GPU_UTIL}, target: {value: 80}}\n",
            f"problem: metric.name {ELSEWHERE}",
        ),
        # Labels outside of expressions.
        (
            "a: DCGM_\nrelabelings:\n- sourceLabels: [instance, Hostname]\n",
            f"problem: sourceLabels {LABELS}",
        ),
        (
            '{"a": "DCGM_", "templating": {"list": [{"type": "adhoc", "filters": [{"key": "Hostname"}]}]}}',
            f"problem: key {LABELS}",
        ),
        (
            '{"a": "DCGM_", "annotations": {"list": [{"tagKeys": "gpu,Hostname"}]}}',
            f"problem: tagKeys {LABELS}",
        ),
        # The second of two values counts; the first one is no expression that is known.
        (
            "expr: DCGM_FI_DEV_GPU_UTIL\nexpr: up\n",
            f"problem: expr {ELSEWHERE}",
        ),
        ("expr: [DCGM_FI_DEV_GPU_UTIL]\n", f"problem: expr {ELSEWHERE}"),
        ("? DCGM_FI_DEV_GPU_UTIL\n: 1\n", f"problem: a key {ELSEWHERE}"),
        (f"expr: '{UTIL}\u2028> 1'\n", "problem: this form of a YAML text cannot be changed in place"),
        ('{"expr": "DCGM_FI_DEV_GPU_UTIL{a=\\"\\ud83d\\"}"}', "problem: the expression cannot be parsed: "),
    ],
)  # fmt: skip
def test_what_is_not_translated_is_a_problem(text: str, reason: str) -> None:
    ((_, listed),) = _listed(text)
    assert listed.startswith(reason)
    assert translate_file(text, NAMES).text == text


def _v2(expr: str, label: str, query: str) -> dict[str, Any]:
    """Return a dashboard of Grafana's schema v2."""
    panel_query = {
        "kind": "DataQuery",
        "group": "prometheus",
        "spec": {"expr": expr, "legendFormat": f"{{{{{label}}}}}"},
    }
    organize = {"kind": "organize", "spec": {"options": {"renameByName": {label: "Node"}}}}
    override = {"matcher": {"id": "byName", "options": label}}
    return {
        "kind": "Dashboard",
        "spec": {
            "annotations": [{"kind": "AnnotationQuery", "spec": {"query": {"spec": {"expr": expr}}}}],
            "elements": {
                "panel-1": {
                    "kind": "Panel",
                    "spec": {
                        "data": {
                            "kind": "QueryGroup",
                            "spec": {
                                "queries": [{"kind": "PanelQuery", "spec": {"query": panel_query}}],
                                "transformations": [organize],
                            },
                        },
                        "vizConfig": {"spec": {"fieldConfig": {"overrides": [override]}}},
                    },
                }
            },
            "variables": [
                {
                    "kind": "QueryVariable",
                    "spec": {"name": "Hostname", "definition": query, "query": {"spec": inner}},
                }
                for inner in ({"query": query, "refId": "A"}, {"__legacyStringValue": query})
            ],
        },
    }  # fmt: skip


def test_a_dashboard_of_schema_v2_is_translated() -> None:
    """Queries, legends, fields and variables, whose names stay."""
    old = _v2("DCGM_FI_DEV_GPU_TEMP", "Hostname", "label_values(DCGM_FI_DEV_GPU_TEMP, Hostname)")
    new = _v2(
        "DCGM_FI_DEV_GPU_TEMP_CELSIUS", "hostname", "label_values(DCGM_FI_DEV_GPU_TEMP_CELSIUS, hostname)"
    )
    done = held_file(json.dumps(old))

    assert json.loads(done.text) == new
    assert done.findings == []


@pytest.mark.parametrize("style", [">", ">-", "|", ">+"])
def test_a_block_may_begin_with_empty_lines(style: str) -> None:
    text = f"- expr: {style}\n\n\n    DCGM_FI_DEV_GPU_UTIL\n      > 90\n    or up\n"

    assert held_file(text).text == text.replace("UTIL", "UTIL_RATIO * 100")
