"""All alerts, held against their unit tests, their runbooks, the exporter's series and the dashboards.

What is wrong is told of all alerts at once, each as a line.
"""

import argparse
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from alerts.thresholds import load_thresholds
from exporter.cli import HELP, OPTIONS
from exporter.config import add_options
from exporter.exposition import SelfMetrics
from exporter.metrics import FAMILIES, LEVEL_LABELS
from tests.alerts.committed import NAME, ROOT, Rules, looked_at, told, write_units
from tests.end_to_end.programs import program

# Unit files are evaluated in so many tests, of about a second each.
PARTS = 4
RUNBOOKS = ROOT / "alerts/runbooks"
SECTIONS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]
# What Prometheus puts on every series, and what it makes of ours where they clash with a target's.
OF_TARGET = {"job", "instance", "cluster", "node", "namespace", "pod", "container"}
EXPORTED = {"exported_node", "exported_namespace", "exported_pod", "exported_container"}
SELECTOR = re.compile(r"\b(gpuslice_[a-z0-9_]+)\{([^}]*)\}")
MATCHER = re.compile(r'([a-zA-Z_]\w*)\s*(?:=~|!~|!=|=)\s*"')
USED_LABEL = re.compile(r"\$labels\.(\w+)")
GUARDED_LABEL = re.compile(r"\b(?:with|if|or) \$labels\.(\w+)")

Units = dict[str, dict[str, Any]]


def metric_labels() -> dict[str, set[str]]:
    """Give the labels that each of the exporter's series may carry."""
    found = {family.name: {*LEVEL_LABELS[family.level], *family.labels} for family in FAMILIES}
    for metric in SelfMetrics().registry.collect():
        for sample in metric.samples:
            found[sample.name] = set(sample.labels)
    return found


def cases(file: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """Give the tests of a unit file that are named as of a kind."""
    return [test for test in file["tests"] if test["name"].startswith(f"{kind}: ")]


def checks(name: str, tests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give what tests look at of one alert."""
    return [check for test in tests for check in test["alert_rule_test"] if check["alertname"] == name]


def expected(name: str, tests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give what tests expect of one alert."""
    return [alert for check in checks(name, tests) for alert in check["exp_alerts"] or ()]


@pytest.mark.parametrize("part", range(PARTS))
def test_every_unit_file_passes(part: int, rules: Rules, units: Units, tmp_path: Path) -> None:
    """In every unit file each alert fires, and keeps silent, when the file says so.

    Only the rules that an alert needs are evaluated: all of them take ten times as long.
    """
    chosen = {name: units[name] for name in sorted(units)[part::PARTS]}
    files = write_units(tmp_path, rules, chosen)
    command = [program("promtool"), "test", "rules", *files]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, re.sub(r"Unit Testing:.*\n  SUCCESS\s*", "", ran.stdout) + ran.stderr


def test_every_alert_has_a_unit_file_and_a_runbook(rules: Rules, units: Units) -> None:
    """There is one unit file and one runbook for each alert, and none without an alert."""
    alerts = set(rules.alerts)
    assert set(units) == alerts
    assert {file.stem for file in RUNBOOKS.glob("*.md")} == alerts


def test_unit_files_say_when_an_alert_fires_and_when_not(units: Units) -> None:
    """Every unit file expects its alert where it says that it fires, none where silent, and has an edge."""
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
        wrong += [f"{name}: {text}" for text, found in problems.items() if found]
    assert wrong == []


def test_unit_files_say_in_which_order_groups_are_evaluated(rules: Rules, units: Units) -> None:
    """Every unit file orders the groups that its alert stands on: promtool takes them in any order else."""
    wrong = []
    for name, file in units.items():
        keep = rules.needed(looked_at(file))
        needed = [
            group["name"]
            for group in rules.groups
            if any({rule.get("alert"), rule.get("record")} & keep for rule in group["rules"])
        ]
        order = file.get("group_eval_order", [])
        if [group for group in order if group in needed] != needed:
            wrong.append(f"{name}: {order}, and needs {needed}")
    assert wrong == []


def test_alerts_are_named_and_told_of_as_agreed(rules: Rules) -> None:
    """Every alert has a name in PascalCase, one of three severities, two texts and a link to its runbook."""
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
        wrong += [f"{name}: {text}" for text, found in problems.items() if found]
    assert wrong == []


def test_texts_name_labels_that_the_alert_has(rules: Rules, units: Units) -> None:
    """Every label that a text names is on the alerts that unit tests expect, or may be missing by the text.

    ``cluster`` is there where a Prometheus sees several clusters only.
    """
    wrong = []
    for name, alert in rules.alerts.items():
        named = {
            label
            for text in alert["annotations"].values()
            for label in set(USED_LABEL.findall(text)) - set(GUARDED_LABEL.findall(text))
        } - {"cluster"}
        wrong += [
            f"{name}: {sorted(missing)}"
            for found in expected(name, cases(units.get(name, {"tests": []}), "fires"))
            if (missing := named - found["exp_labels"].keys())
        ]
    assert wrong == []


def test_links_lead_to_dashboards_that_have_the_variables(rules: Rules) -> None:
    """Every alert links to a dashboard that exists, and sets variables that it has."""
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


def test_rules_ask_for_series_that_exist(rules: Rules) -> None:
    """Every series that rules and texts ask for is a record, or the exporter's with the labels they name."""
    metrics = metric_labels()
    asked = [(name, text) for name, alert in rules.alerts.items() for text in told(alert)]
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


def test_runbooks_have_their_sections() -> None:
    """Every runbook has the name of its alert as title, and the four sections in their order."""
    wrong = [
        file.name
        for file in RUNBOOKS.glob("*.md")
        if re.findall(r"^(#+) (.+)$", file.read_text(), re.MULTILINE)
        != [("#", file.stem), *(("##", section) for section in SECTIONS)]
    ]
    assert wrong == []


def test_runbooks_name_what_exists(rules: Rules) -> None:
    """Every series, alert, threshold, page of docs, command and option that a runbook names exists."""
    known = metric_labels().keys() | rules.records.keys()
    numbers = load_thresholds()
    wrong = []
    for file in RUNBOOKS.glob("*.md"):
        text = file.read_text()
        found = [name for name in NAME.findall(text) if name not in known]
        found += [name for name in re.findall(r"\bGpuSlice\w+", text) if name not in rules.alerts]
        found += [
            f"[{section}] {key}"
            for section, key in re.findall(r"`\[(\w+)\]\s(\w+)`", text)
            if not hasattr(getattr(numbers, section, None), key)
        ]
        found += [page for page in re.findall(r"\bdocs/[\w-]+\.md", text) if not (ROOT / page).exists()]
        found += list(unknown_commands(text))
        wrong += [f"{file.stem}: {name}" for name in found]
    assert wrong == []


def unknown_commands(text: str) -> Iterator[str]:
    """Find the exporter's commands and options, in code, that there are not."""
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
        add_options(parser)
        options = re.findall(r"(?<!\S)--[a-z-]+", called[2] or called[3] or "")
        yield from (f"{code}: {option}" for option in options if option not in parser._option_string_actions)
