"""What promtool makes of a query, for series that were thought out."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.dashboards.answers import FILES
from tests.dashboards.grafana import ALL, Variables, Window, panels
from tests.end_to_end.programs import program

MINUTE = 60
Told = Mapping[str, str]
"""Series in the notation of promtool: values, one each minute, by the series."""


class Asked(NamedTuple):
    """A query, the minute at which it is asked, and the values that it must have by their labels."""

    expr: str
    minute: int
    expected: Mapping[str, float]


def node(until: int, *gpus: str, instance: str = "i1", since: int = 0) -> dict[str, str]:
    """Tell of a node and its GPUs from one minute to another; then its exporter is gone."""
    target = f'job="j", instance="{instance}", node="n1"'
    there = during("1", since, until)
    told = {f"gpuslice_node_info{{{target}}}": there}
    for index, uuid in enumerate(gpus):
        told[f'gpuslice_gpu_up{{{target}, uuid="{uuid}", gpu="{index}"}}'] = there
        told[f'gpuslice_gpu_info{{{target}, uuid="{uuid}", gpu="{index}", model="L4"}}'] = there
    return told


def during(value: str, since: int, until: int) -> str:
    """Write values ("1", "0+60") from one minute to another, and that the series ends."""
    return f"{f'_x{since} ' if since else ''}{value}x{until - since} stale"


def series(name: str, labels: str, instance: str = "i1") -> str:
    """Write a series of an exporter."""
    return f'gpuslice_{name}{{job="j", instance="{instance}", node="n1", {labels}}}'


def query(board: str, panel: str, *, hours: int = 6, kind: str = "", **chosen: str) -> str:
    """Write the first query of a panel as Grafana sends it; ``kind`` is that of the panel."""
    (found,) = {
        each["targets"][0]["expr"]
        for each in panels(FILES[board])
        if each["title"] == panel and kind in ("", each["type"])
    }
    made = {each["name"]: each for each in FILES[board]["templating"]["list"]}
    values = {key: [ALL] for key in made} | {name: [value] for name, value in chosen.items()}
    length = hours * 60 * MINUTE
    return Variables(made, Window(0, length, MINUTE), values, {"node": ["n1"]}).expand(found)


def said(board: str, panel: str, label: str, **chosen: str) -> str:
    """Return a query for the values of a label in the answer to a panel's query; each is 1."""
    return f"group by ({label}) ({query(board, panel, **chosen)})"


def answered(folder: Path, told: Told, *asked: Asked) -> None:
    """Hold answers against what they must be, to three decimals."""
    test = {
        "interval": f"{MINUTE}s",
        "input_series": [{"series": name, "values": values} for name, values in told.items()],
        "promql_expr_test": [
            {
                "expr": f"round({each.expr}, 0.001)",
                "eval_time": f"{each.minute}m",
                "exp_samples": _samples(each.expected),
            }
            for each in asked
        ],
    }
    path = folder / "unit.yaml"
    path.write_text(json.dumps({"evaluation_interval": f"{MINUTE}s", "tests": [test]}))
    ran = subprocess.run(
        [program("promtool"), "test", "rules", path], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def _samples(expected: Mapping[str, float]) -> Sequence[Mapping[str, object]]:
    return [{"labels": f"{{{labels}}}", "value": value} for labels, value in expected.items()]
