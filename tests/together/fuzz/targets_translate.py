"""Files of rules, dashboards and triggers that are translated, and the rules that a Prometheus reports."""

import json
from typing import Any

from exporter.fleet.prometheus import PrometheusError, Response, read_document
from exporter.fleet.rules import decode_rules
from exporter.translate.documents import UnreadableFileError
from exporter.translate.names import UntranslatableError
from exporter.translate.uses import expression_use
from tests.core.translate.laws import NAMES, held_expression, held_file
from tests.together.fuzz.seeds import encoded
from tests.together.fuzz.target import Target

RULES = """\
groups:
- name: gpus  # DCGM_FI_DEV_GPU_UTIL
  rules:
  - record: gpu:util:avg
    expr: avg by (Hostname) (DCGM_FI_DEV_GPU_UTIL)
  - alert: &hot Hot
    expr: >-
      DCGM_FI_DEV_GPU_TEMP{Hostname!=""}
        > 85
    annotations: {summary: "{{ $labels.Hostname }} {{ $value }}", other: *hot}
"""
CHART = """\
{{- if .Values.rules }}
- expr: 'max_over_time(DCGM_FI_DEV_FB_USED[5m]) * 1024 * 1024 > {{ .Values.limit }}'
{{- end }}
---
data:
  a.json: |
    {"panels": [{"targets": [{"expr": "DCGM_FI_DEV_SM_CLOCK"}]}]}
"""
DASHBOARD = json.dumps(
    {
        "templating": {"list": [{"type": "query", "query": "label_values(DCGM_FI_DEV_GPU_TEMP, Hostname)"}]},
        "panels": [
            {
                "targets": [{"expr": "DCGM_FI_DEV_GPU_UTIL", "legendFormat": "{{Hostname}}"}],
                "fieldConfig": {"overrides": [{"matcher": {"options": "Hostname"}}]},
            }
        ],
    }
)
EXPRESSIONS = (
    'avg by (Hostname) (DCGM_FI_DEV_GPU_UTIL{gpu=~"$gpu"}) > 80',
    "rate(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[5m] offset 1h) / 1000 # joules",
    'label_replace(DCGM_FI_DEV_FB_USED / ignoring(gpu) DCGM_FI_DEV_FB_TOTAL, "a", "$1", "Hostname", "")',
    "max_over_time(DCGM_FI_DEV_FB_USED[1h:5m] @ end()) == bool 0 or {__name__=~'DCGM_FI_DEV_FB_(USED|FREE)'}",
)
ANSWER = {
    "status": "success",
    "data": {
        "groups": [
            {
                "name": "gpus",
                "file": "a.yaml",
                "rules": [
                    {"type": "alerting", "name": "Hot", "query": "DCGM_FI_DEV_GPU_TEMP > 85"},
                    {"type": "recording", "name": "a:b", "query": "up", "datasourceType": "prometheus"},
                ],
            }
        ]
    },
    "warnings": ["one"],
}


def _text(content: bytes) -> str:
    return content.decode(errors="replace")


def _rules(content: bytes) -> Any:
    """Decode an answer, and look what its rules use."""
    found = decode_rules(read_document(Response(200, content)))
    return found, [expression_use(rule.query, NAMES) for rule in found.rules]


TARGETS = (
    Target(
        name="translate-file",
        covers=tuple(
            f"exporter.translate.{name}"
            for name in (
                *("actions", "documents", "edits", "expression", "files", "labels", "leftovers", "literals"),
                *(
                    "metrics",
                    "names",
                    "places",
                    "queries",
                    "scalars",
                    "templates",
                    "tokens",
                    "tree",
                    "uses",
                    "values",
                ),
            )
        ),
        seeds=encoded(RULES, CHART, DASHBOARD, RULES.replace("\n", "\r\n"), "\ufeff" + DASHBOARD),
        decode=lambda content: held_file(_text(content)),
        refuses=(UnreadableFileError,),
        cost=10,
        words=(b"&a", b"*a", b"<<: ", b"- ", b"? ", b"|2-", b">+", b"{{", b"}}", b"---\n", b"\t", b"DCGM_"),
    ),
    Target(
        name="translate-expression",
        covers=("exporter.translate.expression", "exporter.translate.tree", "exporter.translate.values"),
        seeds=encoded(*EXPRESSIONS),
        decode=lambda content: held_expression(_text(content)),
        refuses=(UntranslatableError,),
        cost=5,
        words=(b"DCGM_FI_DEV_GPU_UTIL", b"$x", b"[5m]", b" offset ", b"{{", b"#", b"bool ", b"on()", b"@ "),
    ),
    Target(
        name="prometheus-rules",
        covers=("exporter.fleet.rules", "exporter.translate.uses"),
        seeds=lambda: [json.dumps(ANSWER).encode()],
        decode=_rules,
        refuses=(PrometheusError,),
        cost=2,
        words=(b"null", b'"vlogs"', b'"groupNextToken": "x"'),
    ),
)
