"""The committed rules and their unit tests."""

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import yaml

from alerts.thresholds import load_thresholds
from alerts.write import RECORDING, rule_files

ROOT = Path(__file__).parents[3]
UNITS = ROOT / "tests/product/alerts/units"
FILES = (ROOT / "alerts/rules/gpuslice-recording.yaml", ROOT / "alerts/rules/gpuslice-alerts.yaml")
NAME = re.compile(r"[a-z]+:gpuslice_[a-z0-9_]+:[a-z0-9_]+|\bgpuslice_[a-z0-9_]+")
"""A recording rule or a metric in an expression or a text."""
Groups: TypeAlias = list[dict[str, Any]]
Unit: TypeAlias = dict[str, Any]


class Rules(NamedTuple):
    """The rules of files."""

    groups: Groups
    alerts: dict[str, dict[str, Any]]  # by name
    records: dict[str, str]  # expressions by name

    def needed(self, alerts: Iterable[str]) -> set[str]:
        """Return the alerts with all recording rules that they and their texts are based on."""
        needed = {*alerts} & self.alerts.keys()
        texts = [text for name in needed for text in texts_of(self.alerts[name])]
        while texts:
            new = {name for name in NAME.findall(texts.pop()) if name in self.records} - needed
            needed |= new
            texts += [self.records[name] for name in new]
        return needed


def texts_of(alert: dict[str, Any]) -> Iterator[str]:
    """Yield the expression of an alert and its annotations."""
    yield alert["expr"]
    yield from alert["annotations"].values()


def quick_rules(folder: Path) -> Path:
    """Return a file of the recording rules that is evaluated every second; a holder is idle after one."""
    numbers = load_thresholds()
    often = replace(
        numbers,
        rules=replace(numbers.rules, interval="1s", slow_interval="1s"),
        sharing=replace(numbers.sharing, idle_after="1s"),
    )
    path = folder / "recording.yaml"
    # The intervals of the rules of advice cannot be set.
    path.write_text(re.sub(r"(?m)^( +interval: ).*$", r"\g<1>1s", rule_files(often)[RECORDING]))
    return path


def _load(file: Path) -> Any:
    # Python's own loader takes seconds of each process that collects tests.
    return yaml.load(file.read_text(), yaml.CSafeLoader)


def committed_rules() -> Rules:
    """Return the rules of the committed files."""
    return rules_in(file.read_text() for file in FILES)


def rules_in(texts: Iterable[str]) -> Rules:
    """Return the rules of files."""
    groups = [group for text in texts for group in yaml.load(text, yaml.CSafeLoader)["groups"]]
    every = [rule for group in groups for rule in group["rules"]]
    return Rules(
        groups=groups,
        alerts={rule["alert"]: rule for rule in every if "alert" in rule},
        records={rule["record"]: rule["expr"] for rule in every if "record" in rule},
    )


def committed_units(pattern: str = "*.yaml") -> dict[str, Unit]:
    """Return the files of unit tests by their names without the ending."""
    return {file.stem: _load(file) for file in sorted(UNITS.glob(pattern))}


def checked_alerts(unit: Unit) -> set[str]:
    """Return the alerts that a unit file checks: its own, and those that fire instead of it."""
    return {check["alertname"] for test in unit["tests"] for check in test.get("alert_rule_test", ())}


def write_units(
    folder: Path,
    rules: Rules,
    units: Mapping[str, Unit],
    change: Callable[[Unit, Groups], tuple[Unit, Groups]] = lambda unit, groups: (unit, groups),
) -> list[str]:
    """Write unit files, each with the rules that its alerts need, and return their names.

    A unit file without alerts gets all records. With all rules each file takes ten times as long.
    """
    for name, unit in units.items():
        keep = rules.needed(checked_alerts(unit)) or rules.records.keys()
        changed, groups = change(unit, [kept(group, keep) for group in rules.groups])
        (folder / f"{name}.rules.yaml").write_text(yaml.safe_dump({"groups": groups}))
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(changed | {"rule_files": [f"{name}.rules.yaml"]}))
    return [f"{name}.yaml" for name in sorted(units)]


def kept(group: dict[str, Any], names: Container[str]) -> dict[str, Any]:
    """Return a group with the alerts and records of these names only."""
    rules = [rule for rule in group["rules"] if rule.get("alert", rule.get("record")) in names]
    return group | {"rules": rules}
