"""Generated files of the chart: its schema, the table in its README, its rules and dashboards."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

from deploy.charts.schema import values_schema
from deploy.charts.values import Value, read_values

CHART = Path(__file__).with_name("gpuslice-exporter")
ROOT = Path(__file__).parents[2]
RULES = ("gpuslice-recording.yaml", "gpuslice-alerts.yaml")
_TABLE = re.compile(r"^\| Key \|.*?\n(?=\n|\Z)", re.MULTILINE | re.DOTALL)
# For a longer default, the table refers to values.yaml.
_LONGEST_DEFAULT = 60


def chart_files() -> dict[str, str]:
    """Return the text of each file, by its path below the chart. ValueError: a value has no description."""
    values = read_values(CHART / "values.yaml")
    return {
        "values.schema.json": _json(values_schema(values, alert_names())),
        "README.md": _readme(values),
        "files/values/never-null.txt": "".join(f"{path}\n" for path in never_null(values)),
        **{f"files/rules/{name}": (ROOT / "alerts/rules" / name).read_text("utf-8") for name in RULES},
        **{
            f"files/dashboards/{path.name}": _small(path)
            for path in sorted((ROOT / "dashboards/json").glob("*.json"))
        },
    }


def alert_names() -> list[str]:
    """Return the names of all alerts, in the order of their file."""
    groups = yaml.safe_load((ROOT / "alerts/rules" / RULES[1]).read_text("utf-8"))["groups"]
    return [rule["alert"] for group in groups for rule in group["rules"]]


def never_null(values: list[Value]) -> list[str]:
    """Return the paths of groups, and of values that are not empty by default nor lists nor mappings."""
    paths = []
    for value in values:
        groups = value.path.split(".")[:-1]
        paths += [".".join(groups[: depth + 1]) for depth in range(len(groups))]
        if value.default != "" and not isinstance(value.default, list | dict):
            paths.append(value.path)
    return list(dict.fromkeys(paths))


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _small(path: Path) -> str:
    """Return compact JSON: a release with all its files must fit into one Secret."""
    return json.dumps(json.loads(path.read_text("utf-8")), separators=(",", ":"), ensure_ascii=False) + "\n"


def _readme(values: list[Value]) -> str:
    text, tables = _TABLE.subn(lambda _: _table(values), (CHART / "README.md").read_text("utf-8"))
    if tables != 1:
        message = f"the chart's README.md must have one table of values, and has {tables}"
        raise ValueError(message)
    return text


def _table(values: list[Value]) -> str:
    return "| Key | Type | Default | Description |\n| --- | --- | --- | --- |\n" + "".join(map(_row, values))


def _row(value: Value) -> str:
    default = json.dumps(value.default, ensure_ascii=False)
    shown = f"`{default}`" if len(default) <= _LONGEST_DEFAULT else "see values.yaml"
    cells = f"`{value.path}`", value.type, shown, value.text
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"
