"""Whole files: rules, dashboards, triggers; what is found in them, and what stays as it was."""

import json
from collections.abc import Mapping
from difflib import unified_diff
from typing import Any

import pytest
import yaml

from exporter.translate.documents import UnreadableFileError
from exporter.translate.files import TranslatedFile, records, translate_file
from exporter.translate.names import TARGETS

NAMES = TARGETS["dcgm-4.9"]


def _translated(text: str) -> TranslatedFile:
    return translate_file(text, NAMES)


def _changes(text: str) -> list[str]:
    """Return the new lines of a file that was translated completely."""
    done = _translated(text)
    assert [found.reason for found in done.findings if found.level == "problem"] == []
    lines = unified_diff(text.split("\n"), done.text.split("\n"), n=0, lineterm="")
    return [line[1:].strip() for line in lines if line.startswith("+") and not line.startswith("+++")]


def _problems(text: str, target: str = "dcgm-4.9") -> list[str]:
    found = translate_file(text, TARGETS[target]).findings
    return [each.reason for each in found if each.level == "problem"]


RULES = """\
# Rules of the GPUs: DCGM_FI_DEV_GPU_UTIL and others.
groups:
  - name: gpus   # every minute
    interval: 1m
    rules:
      - alert: Hot
        expr: DCGM_FI_DEV_GPU_TEMP{Hostname!=""}  >  85
        for: 5m
        labels: {severity: warning, host: "{{ $labels.Hostname }}"}
        annotations:
          summary: 'GPU {{ $labels.gpu }} of {{ $labels.Hostname }} has {{ $value }} C'
          description: >-
            {{ with query "avg(DCGM_FI_DEV_GPU_UTIL)" }}{{ . | first | value }} %{{ end }}
            on {{ .Labels.Hostname }}, {{ index $labels "Hostname" }}
      - record: gpu:used:ratio
        expr: |
          # of what can be used
          DCGM_FI_DEV_FB_USED
            /
          (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE)
      - &other
        alert: Down
        expr: up{job="dcgm"} == 0
        annotations: {summary: "{{ $labels.Hostname }}"}
"""


def test_rules_change_in_their_expressions_and_templates_only() -> None:
    assert _changes(RULES) == [
        'expr: DCGM_FI_DEV_GPU_TEMP_CELSIUS{hostname!=""}  >  85',
        'labels: {severity: warning, host: "{{ $labels.hostname }}"}',
        "summary: 'GPU {{ $labels.gpu }} of {{ $labels.hostname }} has {{ $value }} C'",
        '{{ with query "avg(DCGM_FI_DEV_GPU_UTIL_RATIO) * 100" }}{{ . | first | value }} %{{ end }}',
        'on {{ .Labels.hostname }}, {{ index $labels "hostname" }}',
        "DCGM_FI_DEV_FB_USED_BYTES",
        "(DCGM_FI_DEV_FB_USED_BYTES + DCGM_FI_DEV_FB_FREE_BYTES)",
    ]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda rules: {"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "spec": rules},
        lambda rules: {"kind": "List", "items": [{"kind": "PrometheusRule", "spec": rules}]},
        lambda rules: {"serverFiles": {"alerting_rules.yml": rules}},
        lambda rules: {"kind": "ConfigMap", "data": {"gpus.yaml": yaml.safe_dump(rules)}},
        lambda rules: {"kind": "ConfigMap", "data": {"gpus.json": json.dumps(rules)}},
    ],
    ids=["PrometheusRule", "list", "values", "ConfigMap with YAML", "ConfigMap with JSON"],
)
def test_rules_are_found_wherever_they_are(wrap: Any) -> None:
    """In objects, in values of charts, and in documents within documents."""
    rules = {"groups": [{"name": "a", "rules": [{"alert": "Busy", "expr": "DCGM_FI_DEV_GPU_UTIL > 90"}]}]}
    new = json.loads(json.dumps(rules).replace("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO * 100"))
    for written in (yaml.safe_dump(wrap(rules)), json.dumps(wrap(rules), indent=2)):
        done = _translated(written)
        read = yaml.safe_load(done.text)
        assert (done.translated, done.findings) == (1, [])
        if read["kind" if "kind" in read else "serverFiles"] == "ConfigMap":
            (name,) = read["data"]
            read["data"][name] = yaml.safe_load(read["data"][name])
            assert read == {"kind": "ConfigMap", "data": {name: new}}
        else:
            assert read == wrap(new)


def _dashboard(**parts: Any) -> dict[str, Any]:
    panel = {"title": "Hostname", "type": "table", "targets": [], **parts}
    return {"panels": [{"type": "row", "panels": [panel]}]}


def _panel(dashboard: Mapping[str, Any]) -> dict[str, Any]:
    done = _translated(json.dumps(dashboard, indent=2))
    assert done.findings == []
    panel: dict[str, Any] = json.loads(done.text)["panels"][0]["panels"][0]
    return panel


def test_queries_of_panels_and_their_legends_change_together() -> None:
    """Legends of other queries stay, and so do units and thresholds: the values are as before."""
    targets = [
        {"expr": 'DCGM_FI_DEV_GPU_UTIL{gpu="$gpu"}', "legendFormat": "{{Hostname}} GPU {{ gpu }}"},
        {"expr": 'node_load1{Hostname="a"}', "legendFormat": "{{Hostname}}"},
    ]
    defaults = {"unit": "percent", "thresholds": {"steps": [{"value": 80}]}}
    panel = _panel(_dashboard(targets=targets, fieldConfig={"defaults": defaults}))

    assert panel["targets"][0] == {
        "expr": 'DCGM_FI_DEV_GPU_UTIL_RATIO{gpu="$gpu"} * 100',
        "legendFormat": "{{hostname}} GPU {{ gpu }}",
    }
    assert panel["targets"][1] == targets[1]
    assert panel["fieldConfig"]["defaults"] == defaults


def test_fields_of_a_panel_have_the_new_labels() -> None:
    """As keys and values of transformations and overrides, and in links; a title stays."""
    panel = _panel(
        _dashboard(
            targets=[{"expr": "DCGM_FI_DEV_GPU_TEMP", "format": "table"}],
            transformations=[{"id": "organize", "options": {"renameByName": {"Hostname": "Node"}}}],
            fieldConfig={
                "overrides": [{"matcher": {"id": "byName", "options": "Hostname"}}],
                "defaults": {"displayName": "${__field.labels.Hostname}"},
            },
            options={"sortBy": [{"displayName": "Hostname"}]},
        )
    )

    assert panel["transformations"][0]["options"]["renameByName"] == {"hostname": "Node"}
    assert panel["fieldConfig"]["overrides"][0]["matcher"]["options"] == "hostname"
    assert panel["fieldConfig"]["defaults"]["displayName"] == "${__field.labels.hostname}"
    assert panel["options"]["sortBy"] == [{"displayName": "hostname"}]
    assert panel["title"] == "Hostname"


@pytest.mark.parametrize(
    ("query", "new"),
    [
        (
            "label_values(DCGM_FI_DEV_GPU_UTIL, Hostname)",
            "label_values(DCGM_FI_DEV_GPU_UTIL_RATIO, hostname)",
        ),
        (
            'label_values(DCGM_FI_DEV_FB_USED{Hostname=~"$Hostname",gpu!=""},gpu)',
            'label_values(DCGM_FI_DEV_FB_USED_BYTES{hostname=~"$Hostname",gpu!=""},gpu)',
        ),
        ("query_result(DCGM_FI_DEV_GPU_UTIL > 0)", "query_result(DCGM_FI_DEV_GPU_UTIL_RATIO * 100 > 0)"),
        ("label_values(node_load1, Hostname)", "label_values(node_load1, Hostname)"),
        ("label_values(up, job)", "label_values(up, job)"),
    ],
)
def test_variables_of_dashboards_keep_their_names(query: str, new: str) -> None:
    """In both forms of a query, with its copy in ``definition`` and the pattern for its results."""
    for kept in (query, {"query": query, "refId": "A"}):
        variable = {
            "type": "query",
            "name": "Hostname",
            "definition": query,
            "query": kept,
            "regex": '/Hostname="([^"]+)"/',
        }
        other = {"type": "custom", "name": "x", "query": "Hostname,gpu"}
        dashboard = {"templating": {"list": [variable, other]}, "uid": "DCGM"}
        done = _translated(json.dumps(dashboard))
        first, second = json.loads(done.text)["templating"]["list"]

        assert done.findings == []
        assert first["definition"] == new
        assert first["query"] == (new if kept == query else {"query": new, "refId": "A"})
        assert first["name"] == "Hostname"
        assert ("hostname=" in first["regex"]) == query.startswith("query_result")
        assert second == other


def test_triggers_of_keda_keep_their_threshold() -> None:
    text = """\
kind: ScaledObject
spec:
  triggers:
    - type: prometheus
      metadata:
        metricName: DCGM_FI_DEV_GPU_UTIL
        query: avg(DCGM_FI_DEV_GPU_UTIL{pod=~"llm-.*"})
        threshold: "70"
    - type: cpu
      metadata: {value: "60"}
"""
    assert _changes(text) == ['query: avg(DCGM_FI_DEV_GPU_UTIL_RATIO{pod=~"llm-.*"}) * 100']


def test_rules_of_grafana_have_their_queries_and_texts() -> None:
    text = """\
groups:
  - rules:
      - uid: hot
        title: Hot
        data:
          - refId: A
            model: {expr: 'max by (Hostname) (DCGM_FI_DEV_GPU_TEMP)', refId: A}
          - refId: C
            model: {expression: A, type: threshold}
        annotations:
          summary: '{{ $labels.Hostname }} has {{ $values.A }}'
"""
    assert _changes(text) == [
        "model: {expr: 'max by (hostname) (DCGM_FI_DEV_GPU_TEMP_CELSIUS)', refId: A}",
        "summary: '{{ $labels.hostname }} has {{ $values.A }}'",
    ]


def test_a_dashboard_in_a_config_map_is_changed_in_place() -> None:
    """JSON within a block of YAML: the places are those of the file."""
    text = """\
apiVersion: v1
kind: ConfigMap
data:
  gpus.json: |-
    {
      "panels": [
        {"targets": [{"expr": "sum(DCGM_FI_DEV_FB_USED{pod=\\"a\\"}) * 1024 * 1024"}]},
        {"targets": [{"expr": "changes(DCGM_FI_DEV_FB_USED[5m])"}]}
      ]
    }
"""
    done = _translated(text)
    ((place, level, reason, expression),) = done.findings

    assert done.text == text.replace(
        'sum(DCGM_FI_DEV_FB_USED{pod=\\"a\\"}) * 1024 * 1024', 'sum(DCGM_FI_DEV_FB_USED_BYTES{pod=\\"a\\"})'
    )
    assert (level, expression) == ("problem", "changes(DCGM_FI_DEV_FB_USED[5m])")
    assert "changes" in text[place:].partition("\n")[0]
    assert "other steps" in reason


def test_charts_with_templates_are_translated() -> None:
    text = """\
{{- if .Values.alerts.enabled }}
groups:
  - name: {{ include "gpus.fullname" . }}
    rules:
      {{- range .Values.alerts.extra }}
      - {{ toYaml . | nindent 8 }}
      {{- end }}
      - alert: Busy
        expr: DCGM_FI_DEV_GPU_UTIL{job="{{ .Values.job }}"} > {{ .Values.alerts.busy }}
        annotations:
          summary: "GPU {{`{{ $labels.gpu }}`}} is busy"
{{- end }}
"""
    assert _changes(text) == [
        'expr: DCGM_FI_DEV_GPU_UTIL_RATIO{job="{{ .Values.job }}"} * 100 > {{ .Values.alerts.busy }}'
    ]


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_marks_and_ends_of_lines_stay(mark: str, ending: str) -> None:
    text = mark + RULES.replace("\n", ending)
    new = _translated(text).text

    assert new.startswith(mark)
    assert new.count(ending) == RULES.count("\n")
    assert "\r" not in new.replace("\r\n", "")


def test_several_documents_and_anchors_stay() -> None:
    text = """\
--- # first
expr: &e DCGM_FI_DEV_GPU_TEMP
again: {expr: *e}
---
expr: *missing
"""
    with pytest.raises(UnreadableFileError, match=r"line 5, column 7: found undefined alias"):
        _translated(text)

    assert _changes(text.replace("*missing", "up")) == ["expr: &e DCGM_FI_DEV_GPU_TEMP_CELSIUS"]


def test_a_file_without_names_of_dcgm_is_not_even_read() -> None:
    assert _translated("{ not: [a file").text == "{ not: [a file"


def test_names_elsewhere_are_reported() -> None:
    """A text for people may keep them; in other places their use is not known."""
    text = """\
groups:
  - rules:
      - alert: Hot
        expr: DCGM_FI_DEV_GPU_TEMP > 85
        annotations: {description: DCGM_FI_DEV_GPU_TEMP is high}
rules:
  - seriesQuery: 'DCGM_FI_DEV_GPU_UTIL{pod!=""}'
    metricsQuery: avg(<<.Series>>)
data:
  counters.csv: |
    DCGM_FI_DEV_FB_USED, gauge, Memory in use.
"""
    done = _translated(text)

    assert [(found.level, text[found.place :].partition(" ")[0]) for found in done.findings] == [
        ("note", "DCGM_FI_DEV_GPU_TEMP"),
        ("problem", "'DCGM_FI_DEV_GPU_UTIL{pod!=\"\"}'\n"),
        ("problem", "|\n"),
    ]
    assert "collector file" in done.findings[2].reason


def test_new_names_outside_of_the_default_counters_are_reported_once() -> None:
    text = (
        "- expr: DCGM_FI_PROF_SM_ACTIVE\n- expr: DCGM_FI_PROF_SM_ACTIVE * 2\n- expr: DCGM_FI_DEV_FB_TOTAL\n"
    )
    (found,) = _translated(text).findings

    assert found.level == "note"
    assert "DCGM_FI_PROF_SM_UTIL_RATIO is printed only if" in found.reason


PRINTF = '{{ printf "DCGM_FI_DEV_GPU_UTIL{gpu=%q}" $labels.gpu | query }}'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('- {expr: DCGM_FI_DEV_GPU_TEMP, legendFormat: "{{__name__}}"}', "the names of the series"),
        (
            f"- alert: A\n  expr: DCGM_FI_DEV_GPU_TEMP\n  annotations: {{a: '{PRINTF}'}}",
            "is put together",
        ),
        ('templating: {list: [{type: query, query: "metrics(DCGM_FI_DEV_.*)"}]}', "by a pattern"),
    ],
)
def test_what_is_left_of_a_translated_expression_is_reported(text: str, reason: str) -> None:
    (problem,) = _problems(text)

    assert reason in problem


def test_labels_that_our_series_do_not_have_are_reported() -> None:
    text = "- alert: A\n  expr: DCGM_FI_DEV_GPU_TEMP\n  annotations: {a: '{{ $labels.modelName }}'}"
    (problem,) = _problems(text, "gpuslice")

    assert "gpuslice_gpu_info" in problem


def test_records_are_followed_through_all_files() -> None:
    first = """\
groups:
  - rules:
      - {record: gpu:util, expr: DCGM_FI_DEV_GPU_UTIL}
      - {record: node:util, expr: sum by (Hostname) (gpu:util)}
      - {record: other, expr: up}
"""
    second = (
        "- {expr: 'node:util{Hostname=\"a\"}', legendFormat: '{{Hostname}}'}\n- expr: other{Hostname=\"a\"}\n"
    )
    found = records([first, second, "{ broken"], NAMES)

    assert found == {"gpu:util", "node:util"}
    assert translate_file(second, NAMES.with_records(found)).text == (
        "- {expr: 'node:util{hostname=\"a\"}', legendFormat: '{{hostname}}'}\n- expr: other{Hostname=\"a\"}\n"
    )


def test_a_file_that_is_nested_too_deeply_is_refused() -> None:
    """Whichever part of the program meets it first."""
    for depth in range(100, 1000, 50):
        text = "[" * depth + '{"expr": "DCGM_FI_DEV_GPU_TEMP"}' + "]" * depth
        try:
            assert _translated(text).translated == 1
        except UnreadableFileError as error:
            assert str(error) == "it is nested too deeply"  # noqa: PT017 - either of both
            return
    pytest.fail("nothing was refused")


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [DCGM_FI_DEV_GPU_UTIL]\n"
        + "\n".join(
            f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]"
            for a, b in zip("abcdefghijklm", "bcdefghijklmn", strict=True)
        ),
        "a: &a\n  b: *a\n  expr: DCGM_FI_DEV_GPU_UTIL\n",
        '"DCGM_FI_DEV_GPU_UTIL"',
        '{"expr": "DCGM_FI_DEV_GPU_UTIL", "expr": 5}',
        "expr: [DCGM_FI_DEV_GPU_UTIL]\nannotations: [1]\ntargets: 5\ntemplating: {list: [5, {query: [x]}]}",
        "? {expr: DCGM_FI_DEV_GPU_UTIL}\n: x",
        "a: [" * 3 + "DCGM_FI_DEV_GPU_UTIL" + "]" * 3,
    ],
    ids=["bomb", "circle", "scalar", "twice", "types", "key", "lists"],
)
def test_strange_files_do_no_harm(text: str) -> None:
    """They are translated, or reported."""
    done = _translated(text)

    assert done.translated or done.findings
