"""docs/first-hours.md says when records and panels appear: its times are those of the rules."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from alerts.thresholds import load_thresholds
from exporter.commands.metrics import metrics_markdown
from tests.core.commands.program import output_of
from tests.product.alerts.committed import FILES
from tests.product.dashboards.boards import FILES as BOARDS
from tests.tools import ROOT, tool

PAGE = (ROOT / "docs/first-hours.md").read_text()
RECORDING, ALERTS = (yaml.safe_load(path.read_text())["groups"] for path in FILES)
MINUTES = {"m": 1, "h": 60}
# Records that a busy node without kube-state-metrics and without --pod-labels has no reason for.
WITHOUT_REASON = {
    "container:gpuslice_largest_idle_seconds:topk",
    "gpu:gpuslice_raised_condition:bool",
    "pod:gpuslice_owner:info1h",
    "pod:gpuslice_labels:info1h",
    "labels:gpuslice_usage:increase1h",
    "labels:gpuslice_usage:increase1d",
}


class Row(NamedTuple):
    """A row of the table of groups; times in minutes."""

    interval: int
    first: int


def minutes(text: str) -> int:
    """Return the minutes of a duration of Prometheus."""
    number, unit = re.fullmatch(r"(\d+)([mh])", text).groups()
    return int(number) * MINUTES[unit]


def table() -> dict[str, Row]:
    """Return the table of groups."""
    rows = re.findall(r"^\| `(gpuslice-[\w-]+)` \| (\w+) \| (\w+) \|", PAGE, re.MULTILINE)
    return {name: Row(minutes(interval), minutes(first)) for name, interval, first in rows}


def records(group: dict[str, Any]) -> set[str]:
    """Return the names that a group records."""
    return {rule["record"] for rule in group["rules"]}


def test_the_table_has_each_group_with_its_interval() -> None:
    known = {group["name"]: minutes(group["interval"]) for group in RECORDING}

    assert {name: row.interval for name, row in table().items()} == known


def _input_series() -> Iterator[dict[str, str]]:
    """Yield series of a node whose holders compute: counters grow, clocks run, and all else stays."""
    text = output_of("snapshot", "--scenario", "t4-timeslicing", "--format", "prometheus")
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ", ".join(f"{key}={json.dumps(value)}" for key, value in sorted(sample.labels.items()))
            values = f"{sample.value}x2000"
            if sample.name.endswith("timestamp_seconds"):
                values = "0+60x2000"
            elif family.type == "counter":
                values = "0+30x2000"
            yield {"series": f'{sample.name}{{job="j", instance="i", {labels}}}', "values": values}


@pytest.mark.slow
def test_each_record_has_a_value_by_the_time_in_the_table(tmp_path: Path) -> None:
    """On a node with a constant load, all groups being evaluated at minute 0 and once in each interval."""
    wanted = {group["name"]: records(group) - WITHOUT_REASON for group in RECORDING}
    asked = [
        {
            "expr": f'count(count by (__name__) ({{__name__=~"{"|".join(sorted(names))}"}}))',
            "eval_time": f"{table()[group].first}m",
            "exp_samples": [{"labels": "{}", "value": len(names)}],
        }
        for group, names in wanted.items()
    ]
    case = {"interval": "1m", "input_series": [*_input_series()], "promql_expr_test": asked}
    unit = tmp_path / "unit.yaml"
    test = {"rule_files": [str(FILES[0])], "evaluation_interval": "1m", "tests": [case]}
    unit.write_text(json.dumps(test))
    command = [tool("promtool"), "test", "rules", unit]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_no_time_is_shorter_than_what_rules_wait_for() -> None:
    """A group is first evaluated within its interval; its records wait for those that they read."""
    by_record = {name: group["name"] for group in RECORDING for name in records(group)}
    for group in RECORDING:
        text = " ".join(rule["expr"] for rule in group["rules"])
        below = {
            by_record[name] for name in re.findall(r"[a-z]+:gpuslice_\w+:\w+", text) if name in by_record
        }
        waited = [table()[name].first for name in below - {group["name"]}]
        own = table()[group["name"]]
        assert own.first >= own.interval + min(waited, default=0), group["name"]


def test_panels_on_the_page_exist_on_their_dashboards() -> None:
    """Each name in code after the name of a dashboard."""
    rows = re.findall(r"^\| (Fleet|Tenant|Hardware|Node): (.*?) \|", PAGE, re.MULTILINE)
    for board, text in rows:
        titles = set(_titles(BOARDS[board.lower()]["panels"]))
        assert set(re.findall(r"`([^`]+)`", text)) <= titles, board


def _titles(panels: list[dict[str, Any]]) -> Iterator[str]:
    for panel in panels:
        yield panel.get("title", "")
        yield from _titles(panel.get("panels", []))


def test_panels_of_hours_are_those_on_the_page() -> None:
    """Of the dashboard Fleet, each that reads the records of an hour is named."""
    (group,) = [group for group in RECORDING if group["name"] == "gpuslice-hours"]
    reading = {
        panel["title"]
        for panel in _flat(BOARDS["fleet"]["panels"])
        for target in panel.get("targets", [])
        if any(name in target.get("expr", "") for name in records(group))
    }
    (row,) = re.findall(r"^\| Fleet: `Used, of held, 1 h`.*$", PAGE, re.MULTILINE)

    assert reading == set(re.findall(r"`([^`]+)`", row))


def _flat(panels: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for panel in panels:
        yield panel
        yield from _flat(panel.get("panels", []))


def test_alerts_that_look_back_are_on_the_page() -> None:
    """Those that wait an hour or longer; the others wait as long as the table of alerts says."""
    late = {
        rule["alert"]
        for group in ALERTS
        for rule in group["rules"]
        if minutes(rule.get("for", "0m")) >= MINUTES["h"] or "[1h] offset 1d" in rule["expr"]
    }
    table_of_alerts = PAGE.partition("## Alerts")[2].partition("## A check")[0]
    rows = " ".join(re.findall(r"^\| (GpuSlice.*?) \|", table_of_alerts, re.MULTILINE))
    named = set(re.findall(r"GpuSlice\w+", table_of_alerts))
    idle = load_thresholds().sharing.idle_after

    assert late <= set(re.findall(r"GpuSlice\w+", rows))
    assert named <= {rule["alert"] for group in ALERTS for rule in group["rules"]}
    assert minutes(idle) == MINUTES["h"], "the page says an hour"


def test_the_series_of_the_check_exist() -> None:
    known = metrics_markdown()
    records_of_all = {name for group in RECORDING for name in records(group)}
    names = set(re.findall(r"(?<![\w:])gpuslice_\w+", PAGE.partition("## A check")[2]))

    assert {name for name in names if f"`{name}`" not in known} == set()
    assert set(re.findall(r"[a-z]+:gpuslice_\w+:\w+", PAGE)) <= records_of_all
