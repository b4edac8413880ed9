"""GPU-hours of a window in which rules did not record every hour: they are lower bounds."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from exporter.fleet.namespaces import namespace_questions
from exporter.fleet.watch import read_fleet
from tests.fleet.answering import HOURS, Samples, connected, of_node
from tests.tools import tool

WINDOW = 9000.0
(QUESTION,) = (text for name, text in namespace_questions(WINDOW).items() if name == "hours without records")
# Two full hours are in the window, at 60 and at 120 minutes.
END = 160
NODE, EXPORTERS = "gpuslice_node_info", "node:gpuslice_exporters:count"
CONTAINERS, HELD = (
    f"namespace:gpuslice_{name}" for name in ("containers:count", "held_gpu_seconds:increase1h")
)


@pytest.mark.parametrize(
    ("begins", "hours"),
    [
        ({NODE: 0, EXPORTERS: 0, CONTAINERS: 0, HELD: 0}, None),
        ({NODE: 0, EXPORTERS: 100, CONTAINERS: 100, HELD: 100}, 1),
        ({NODE: 0, EXPORTERS: 130, CONTAINERS: 130, HELD: 130}, 2),
        ({NODE: 0, EXPORTERS: 0, CONTAINERS: 0, HELD: 70}, 1),
        ({NODE: 0, EXPORTERS: 0, CONTAINERS: 0}, 2),
        ({NODE: 0, EXPORTERS: 0}, None),
        ({NODE: 100, EXPORTERS: 100, CONTAINERS: 100, HELD: 101}, None),
    ],
    ids=[
        "all",
        "young rules",
        "new rules",
        "a young group",
        "no such group",
        "nobody holds",
        "a new cluster",
    ],
)
def test_an_hour_is_unrecorded_if_rules_have_none_of_what_was_there(
    tmp_path: Path, begins: dict[str, int], hours: int | None
) -> None:
    series = [
        {
            "series": f'{name}{{cluster="c", name="{name}"}}',
            "values": f"_x{begin} 1x{END}" if begin else f"1x{END}",
        }
        for name, begin in begins.items()
    ]
    expected = [] if hours is None else [{"labels": "{}", "value": hours}]
    case = {
        "interval": "1m",
        "input_series": series,
        "promql_expr_test": [{"expr": QUESTION, "eval_time": f"{END}m", "exp_samples": expected}],
    }
    unit = tmp_path / "unit.yaml"
    unit.write_text(yaml.safe_dump({"rule_files": [], "evaluation_interval": "1m", "tests": [case]}))
    done = subprocess.run(
        [tool("promtool"), "test", "rules", unit], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("unrecorded", [0, 3])
async def test_gpu_hours_are_complete_if_every_hour_is_recorded(unrecorded: int) -> None:
    hours: Samples = [({}, float(unrecorded))] if unrecorded else []
    async with connected(of_node({re.escape(QUESTION): hours, **HOURS})) as prometheus:
        fleet = await read_fleet(prometheus, WINDOW)

    (namespace,) = fleet.namespaces or ()
    for amount in namespace.hours[:2]:
        assert amount.as_dict() == {"value": 1.0, "complete": not unrecorded}
