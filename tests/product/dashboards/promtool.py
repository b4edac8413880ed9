"""Answers of promtool to a query, for made-up series."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.product.dashboards.boards import FILES
from tests.product.dashboards.grafana import ALL, Variables, Window, panels
from tests.tools import tool

MINUTE = 60
# Values, one each minute, by the series, in the notation of promtool.
AllSeries = Mapping[str, str]


class Asked(NamedTuple):
    """A query, its minute, and the expected values by labels."""

    expr: str
    minute: int
    expected: Mapping[str, float]


def node(until: int, *gpus: str, instance: str = "i1", since: int = 0) -> dict[str, str]:
    """Return the series of a node and its GPUs from one minute to another; then its exporter is gone."""
    target = f'job="j", instance="{instance}", node="n1"'
    present = during("1", since, until)
    made = {f"gpuslice_node_info{{{target}}}": present}
    for index, uuid in enumerate(gpus):
        made[f'gpuslice_gpu_up{{{target}, uuid="{uuid}", gpu="{index}"}}'] = present
        made[f'gpuslice_gpu_info{{{target}, uuid="{uuid}", gpu="{index}", model="L4"}}'] = present
    return made


def during(value: str, since: int, until: int) -> str:
    """Return values ("1", "0+60") from one minute to another, when the series ends."""
    return f"{f'_x{since} ' if since else ''}{value}x{until - since} stale"


def series(name: str, labels: str, instance: str = "i1") -> str:
    """Return the name of a series of an exporter with its labels."""
    return f'gpuslice_{name}{{job="j", instance="{instance}", node="n1", {labels}}}'


def query(board: str, panel: str, *, hours: int = 6, kind: str = "", **chosen: str) -> str:
    """Return the first query of a panel as Grafana sends it; ``kind`` is the type of the panel."""
    (expr,) = {
        each["targets"][0]["expr"]
        for each in panels(FILES[board])
        if each["title"] == panel and kind in ("", each["type"])
    }
    made = {each["name"]: each for each in FILES[board]["templating"]["list"]}
    values = {key: [ALL] for key in made} | {name: [value] for name, value in chosen.items()}
    length = hours * 60 * MINUTE
    return Variables(made, Window(0, length, MINUTE), values, {"node": ["n1"]}).expand(expr)


def said(board: str, panel: str, label: str, **chosen: str) -> str:
    """Return a query for the values of a label in the answer to a panel's query; each is 1."""
    return f"group by ({label}) ({query(board, panel, **chosen)})"


def answered(folder: Path, all_series: AllSeries, *asked: Asked) -> None:
    """Check that queries have the expected values, to three decimals."""
    test = {
        "interval": f"{MINUTE}s",
        "input_series": [{"series": name, "values": values} for name, values in all_series.items()],
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
    command = [tool("promtool"), "test", "rules", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _samples(expected: Mapping[str, float]) -> Sequence[Mapping[str, object]]:
    return [{"labels": f"{{{labels}}}", "value": value} for labels, value in expected.items()]
