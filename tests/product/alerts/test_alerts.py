"""All alerts compared with their unit tests, their runbooks, the exporter's series and the dashboards."""

import argparse
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from alerts.thresholds import load_thresholds
from exporter.commands import HELP, OPTIONS
from exporter.config import add_options
from exporter.exposition import SelfMetrics
from exporter.fleet.pages.hub_metrics import WaitingMetrics
from exporter.metrics import FAMILIES, LEVEL_LABELS
from tests.fleet.waiting_cluster import waiting_read
from tests.product.alerts.committed import NAME, ROOT, Rules, checked_alerts, texts_of, write_units
from tests.tools import tool

# The number of tests that share the unit files; each takes about a second.
PARTS = 4
RUNBOOKS = ROOT / "alerts/runbooks"
SECTIONS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]
# Labels that Prometheus sets on every series, and new names of ours that clash with them.
OF_TARGET = {"job", "instance", "cluster", "node", "namespace", "pod", "container"}
EXPORTED = {"exported_node", "exported_namespace", "exported_pod", "exported_container"}
SELECTOR = re.compile(r"\b(gpuslice_[a-z0-9_]+)\{([^}]*)\}")
MATCHER = re.compile(r'([a-zA-Z_]\w*)\s*(?:=~|!~|!=|=)\s*"')
USED_LABEL = re.compile(r"\$labels\.(\w+)")
GUARDED_LABEL = re.compile(r"\b(?:with|if|or) \$labels\.(\w+)")

Units = dict[str, dict[str, Any]]


def metric_labels() -> dict[str, set[str]]:
    """Return the labels that each of the exporter's series may have."""
    labels = {family.name: {*LEVEL_LABELS[family.level], *family.labels} for family in FAMILIES}
    for metric in (*SelfMetrics().registry.collect(), *WaitingMetrics(waiting_read).collect()):
        for sample in metric.samples:
            labels[sample.name] = set(sample.labels)
    return labels


def cases(file: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """Return the tests of a unit file of a kind."""
    return [test for test in file["tests"] if test["name"].startswith(f"{kind}: ")]


def checks(name: str, tests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the checks of one alert."""
    return [check for test in tests for check in test["alert_rule_test"] if check["alertname"] == name]


def expected(name: str, tests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the firing alerts that tests expect of one alert."""
    return [alert for check in checks(name, tests) for alert in check["exp_alerts"] or ()]


@pytest.mark.parametrize("part", range(PARTS))
def test_every_unit_file_passes(part: int, rules: Rules, units: Units, tmp_path: Path) -> None:
    chosen = {name: units[name] for name in sorted(units)[part::PARTS]}
    files = write_units(tmp_path, rules, chosen)
    command = [tool("promtool"), "test", "rules", *files]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, re.sub(r"Unit Testing:.*\n  SUCCESS\s*", "", ran.stdout) + ran.stderr


def test_every_alert_has_a_unit_file_and_a_runbook(rules: Rules, units: Units) -> None:
    alerts = set(rules.alerts)
    assert set(units) == alerts
    assert {file.stem for file in RUNBOOKS.glob("*.md")} == alerts


def test_unit_files_have_tests_that_fire_are_silent_and_at_the_edge(units: Units) -> None:
    wrong = []
    for name, file in units.items():
        kinds = {kind: cases(file, kind) for kind in ("fires", "silent", "edge")}
        problems = {
            "a test is of no kind": sum(map(len, kinds.values())) != len(file["tests"]),
            "a kind is missing": not all(kinds.values()),
            "a test that fires expects nothing": not all(expected(name, [test]) for test in kinds["fires"]),
            "a silent test does not look": not all(checks(name, [test]) for test in kinds["silent"]),
            "a silent test expects it": bool(expected(name, kinds["silent"])),
        }
        wrong += [f"{name}: {text}" for text, is_wrong in problems.items() if is_wrong]
    assert wrong == []


def test_unit_files_order_the_groups_that_their_alert_needs(rules: Rules, units: Units) -> None:
    """Otherwise promtool evaluates them in any order."""
    wrong = []
    for name, file in units.items():
        keep = rules.needed(checked_alerts(file))
        needed = [
            group["name"]
            for group in rules.groups
            if any({rule.get("alert"), rule.get("record")} & keep for rule in group["rules"])
        ]
        order = file.get("group_eval_order", [])
        if [group for group in order if group in needed] != needed:
            wrong.append(f"{name}: {order}, and needs {needed}")
    assert wrong == []


def test_alerts_have_a_name_severity_texts_and_runbook(rules: Rules) -> None:
    wrong = []
    for name, alert in rules.alerts.items():
        notes = alert["annotations"]
        problems = {
            "name": not re.fullmatch(r"GpuSlice([A-Z][a-z0-9]*)+", name),
            "severity": alert["labels"].get("severity") not in ("critical", "warning", "info"),
            "summary": not notes.get("summary", "").strip(),
            "description": not notes.get("description", "").strip(),
            "runbook_url": not notes.get("runbook_url", "").endswith(f"/{name}.md"),
        }
        wrong += [f"{name}: {text}" for text, is_wrong in problems.items() if is_wrong]
    assert wrong == []


def test_texts_use_labels_that_the_alert_has(rules: Rules, units: Units) -> None:
    """The label ``cluster``, and those in an ``if`` or ``with`` of the template, may be missing."""
    wrong = []
    for name, alert in rules.alerts.items():
        named = {
            label
            for text in alert["annotations"].values()
            for label in set(USED_LABEL.findall(text)) - set(GUARDED_LABEL.findall(text))
        } - {"cluster"}
        wrong += [
            f"{name}: {sorted(missing)}"
            for firing in expected(name, cases(units.get(name, {"tests": []}), "fires"))
            if (missing := named - firing["exp_labels"].keys())
        ]
    assert wrong == []


def test_links_lead_to_dashboards_that_have_the_variables(rules: Rules) -> None:
    boards = {}
    for file in (ROOT / "dashboards/json").glob("*.json"):
        board = json.loads(file.read_text())
        boards[board["uid"]] = {variable["name"] for variable in board["templating"]["list"]}
    wrong = []
    for name, alert in rules.alerts.items():
        link = alert["annotations"]["dashboard"]
        uid = re.search(r"/d/([\w-]+)", link)
        if uid is None or uid[1] not in boards:
            wrong.append(f"{name}: {link}")
        elif missing := set(re.findall(r"var-(\w+)=", link)) - boards[uid[1]]:
            wrong.append(f"{name}: {uid[1]} has no {sorted(missing)}")
    assert wrong == []


def test_rules_and_texts_use_series_and_labels_that_exist(rules: Rules) -> None:
    metrics = metric_labels()
    asked = [(name, text) for name, alert in rules.alerts.items() for text in texts_of(alert)]
    asked += list(rules.records.items())
    wrong = [
        f"{name}: {metric}"
        for name, text in asked
        for metric in NAME.findall(text)
        if metric not in metrics and metric not in rules.records
    ]
    wrong += [
        f"{name}: {metric} has no {label}"
        for name, text in asked
        for metric, matchers in SELECTOR.findall(text)
        for label in MATCHER.findall(matchers)
        if label not in metrics.get(metric, {label}) | OF_TARGET | EXPORTED
    ]
    assert wrong == []


def test_runbooks_have_a_title_and_four_sections() -> None:
    wrong = [
        file.name
        for file in RUNBOOKS.glob("*.md")
        if re.findall(r"^(#+) (.+)$", file.read_text(), re.MULTILINE)
        != [("#", file.stem), *(("##", section) for section in SECTIONS)]
    ]
    assert wrong == []


def test_series_alerts_thresholds_pages_and_commands_in_runbooks_exist(rules: Rules) -> None:
    known = metric_labels().keys() | rules.records.keys()
    numbers = load_thresholds()
    wrong = []
    for file in RUNBOOKS.glob("*.md"):
        text = file.read_text()
        unknown = [name for name in NAME.findall(text) if name not in known]
        unknown += [name for name in re.findall(r"\bGpuSlice\w+", text) if name not in rules.alerts]
        unknown += [
            f"[{section}] {key}"
            for section, key in re.findall(r"`\[(\w+)\]\s(\w+)`", text)
            if not hasattr(getattr(numbers, section, None), key)
        ]
        unknown += [page for page in re.findall(r"\bdocs/[\w-]+\.md", text) if not (ROOT / page).exists()]
        unknown += list(unknown_commands(text))
        wrong += [f"{file.stem}: {name}" for name in unknown]
    assert wrong == []


def unknown_commands(text: str) -> Iterator[str]:
    """Yield the exporter's commands and options in code that do not exist."""
    for code in re.findall(r"`([^`\n]+)`", text):
        called = re.search(r"(?:^|-- )gpuslice-exporter (\w+)(.*)|^kubectl gpuslice\b(.*)", code)
        if called is None:
            continue
        command = called[1] or "inspect"
        if command not in HELP:
            yield code
            continue
        parser = argparse.ArgumentParser()
        OPTIONS.get(command, lambda _: None)(parser)
        add_options(parser, command)
        options = re.findall(r"(?<!\S)--[a-z-]+", called[2] or called[3] or "")
        yield from (f"{code}: {option}" for option in options if option not in parser._option_string_actions)
