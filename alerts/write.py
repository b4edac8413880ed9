"""The rules as files for Prometheus, and as objects for the operators that load them."""

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

import yaml

from alerts.advice_records import advice_groups
from alerts.grouping import alert_groups
from alerts.model import Alert, Group, Link, Record
from alerts.records import recording_groups
from alerts.thresholds import RulesSettings, Thresholds
from alerts.usage_records import usage_groups
from alerts.windows import Windows

_MADE = "# Generated from the code in alerts/ by `make rules`. Change the code or thresholds.toml instead.\n"
RECORDING, ALERTS = "rules/gpuslice-recording.yaml", "rules/gpuslice-alerts.yaml"
# API version and kind of each operator's object, by file. Their specs are the same, but for defaults.
OPERATORS = {
    "operator/gpuslice-rules.yaml": ("monitoring.coreos.com/v1", "PrometheusRule"),
    "google/gpuslice-rules.yaml": ("monitoring.googleapis.com/v1", "ClusterRules"),
    "victoria-metrics/gpuslice-rules.yaml": ("operator.victoriametrics.com/v1beta1", "VMRule"),
}


class _Dumper(yaml.SafeDumper):
    """Dump text of several lines as a block."""


def _text(dumper: _Dumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def rule_files(numbers: Thresholds) -> dict[str, str]:
    """Return the text of each file, by its path below alerts/."""
    windows = Windows(
        interval=numbers.rules.interval,
        slow_interval=numbers.rules.slow_interval,
        idle_after=numbers.sharing.idle_after,
    )
    recording = _groups((*recording_groups(windows), *advice_groups(), *usage_groups()), numbers.rules)
    alerts = _groups(alert_groups(numbers), numbers.rules)
    return {
        RECORDING: _written({"groups": recording}),
        ALERTS: _written({"groups": alerts}),
        **{
            path: _written(_object(version, kind, [*recording, *alerts]))
            for path, (version, kind) in OPERATORS.items()
        },
    }


def _object(version: str, kind: str, groups: list[dict[str, Any]]) -> dict[str, Any]:
    if kind == "VMRule":
        # What the API server would add: to Argo CD it would be a difference for ever.
        defaults = {"alert": "", "record": ""}
        groups = [group | {"rules": [defaults | rule for rule in group["rules"]]} for group in groups]
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "gpuslice", "labels": {"app.kubernetes.io/name": "gpuslice-exporter"}},
        "spec": {"groups": groups},
    }


def _groups(groups: Iterable[Group], settings: RulesSettings) -> list[dict[str, Any]]:
    return [
        {
            "name": group.name,
            "interval": group.interval,
            "rules": [
                _alert(rule, settings) if isinstance(rule, Alert) else _record(rule) for rule in group.rules
            ],
        }
        for group in groups
    ]


def _record(record: Record) -> dict[str, Any]:
    return {"record": record.name, "expr": record.expr}


def _alert(alert: Alert, settings: RulesSettings) -> dict[str, Any]:
    annotations = {
        "summary": alert.summary,
        "description": alert.description,
        "runbook_url": f"{settings.runbook_url}/{alert.full_name}.md",
        "dashboard": _link(alert.dashboard, settings.grafana_url),
    }
    return {
        "alert": alert.full_name,
        "expr": alert.expr,
        **({} if alert.hold is None else {"for": alert.hold}),
        "labels": {"severity": alert.severity},
        "annotations": annotations,
    }


def _link(link: Link, grafana: str) -> str:
    chosen = "&".join(
        f"var-{quote(label)}={{{{ with $labels.{label} }}}}{{{{ . | urlquery }}}}{{{{ end }}}}"
        for label in link.labels
    )
    return f"{grafana}/d/{link.uid}" + (f"?{chosen}" if chosen else "")


def _written(value: object) -> str:
    return _MADE + yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)
