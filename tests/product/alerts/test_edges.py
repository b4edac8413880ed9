"""Each threshold has a test on both sides of it: if it is moved a little, one of them fails."""

import json
import re
import subprocess
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from alerts.thresholds import load_thresholds
from alerts.windows import seconds
from alerts.write import ALERTS, RECORDING, rule_files
from tests.product.alerts.committed import Rules, kept, rules_in
from tests.product.alerts.edges import EDGES, Edge, is_long, unit_of
from tests.tools import tool

Units = dict[str, dict[str, Any]]
NUMBERS = load_thresholds()
# The number of tests that share the quick edges; each takes about a second.
PARTS = 4
LONG = PARTS


def write_edge(folder: Path, rules: Rules, units: Units, edge: Edge) -> str:
    """Write a unit file with the rules that it needs, and return its name."""
    alert, number = f"GpuSlice{edge.alert}", len(list(folder.iterdir()))
    keep = rules.needed([alert])
    groups = [kept(group, keep) for group in rules.groups]
    (folder / f"{number}.rules.yaml").write_text(json.dumps({"groups": groups}))
    unit = unit_of(edge, units[alert]) | {"rule_files": [f"{number}.rules.yaml"]}
    (folder / f"{number}.yaml").write_text(json.dumps(unit))
    return f"{number}.yaml"


def failing(folder: Path, files: list[str]) -> set[str]:
    """Return the unit files that fail."""
    ran = subprocess.run(
        [tool("promtool"), "test", "rules", *files], cwd=folder, capture_output=True, text=True, check=False
    )
    assert re.findall(r"Unit Testing: +(\S+)", ran.stdout) == files, ran.stderr
    return set(files) - set(re.findall(r"Unit Testing: +(\S+)\s+SUCCESS", ran.stdout))


@pytest.mark.parametrize("part", [*range(PARTS), pytest.param(LONG, marks=pytest.mark.slow)])
def test_an_alert_is_silent_on_one_side_of_an_edge_and_fires_on_the_other(
    part: int, rules: Rules, units: Units, tmp_path: Path
) -> None:
    short = [edge for edge in EDGES if not is_long(edge)]
    chosen = short[part::PARTS] if part != LONG else [edge for edge in EDGES if is_long(edge)]
    edges = {write_edge(tmp_path, rules, units, edge): edge for edge in chosen}
    assert [edges[file] for file in failing(tmp_path, list(edges))] == []


def moved(threshold: float | str) -> tuple[float | str, float | str]:
    """Return a little less and a little more: 2 percent, or the minute from one evaluation to the next."""
    if not isinstance(threshold, str):
        return 0.98 * threshold, 1.02 * threshold
    step = max(60.0, 0.02 * seconds(threshold))
    return f"{seconds(threshold) - step:.0f}s", f"{seconds(threshold) + step:.0f}s"


def expressions(rules: Rules, alert: str) -> list[object]:
    """Return what decides on an alert: its expression and duration, and the records that it is based on."""
    records = [rules.records[name] for name in rules.needed([alert]) & rules.records.keys()]
    return [rules.alerts[alert]["expr"], rules.alerts[alert].get("for"), sorted(records)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("section", "name"),
    [
        (section.name, threshold.name)
        for section in fields(NUMBERS)
        for threshold in fields(getattr(NUMBERS, section.name))
        # Intervals and links.
        if section.name != "rules"
    ],
)
def test_a_threshold_that_is_moved_breaks_a_test(
    section: str, name: str, rules: Rules, units: Units, tmp_path: Path
) -> None:
    table = getattr(NUMBERS, section)
    for value in moved(getattr(table, name)):
        made = rule_files(replace(NUMBERS, **{section: replace(table, **{name: value})}))
        changed = rules_in((made[RECORDING], made[ALERTS]))
        edges = [
            edge
            for edge in EDGES
            if expressions(changed, f"GpuSlice{edge.alert}") != expressions(rules, f"GpuSlice{edge.alert}")
        ]
        assert failing(tmp_path, [write_edge(tmp_path, changed, units, edge) for edge in edges]), value
