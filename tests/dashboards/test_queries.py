"""Queries, units and texts of panels: rules that a person in front of the dashboard would miss."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dashboards.write import board_files
from exporter.metrics import FAMILIES
from exporter.metrics.dcgm import DCGM
from tests.dashboards.expressions import bare_counters, expanded, parts
from tests.dashboards.grafana import Window, panels
from tests.end_to_end.programs import program

BOARDS = {Path(path).stem: json.loads(text) for path, text in board_files().items()}
COUNTERS = frozenset(family.name for family in (*FAMILIES, *DCGM) if family.type == "counter")
SHOWN_AS_TOTALS = {
    "gpuslice_gpu_ecc_errors_total": "since the driver was loaded, or ever: a board is judged by that",
    "gpuslice_gpu_ecc_location_errors_total": "likewise, by the part of the chip",
    "gpuslice_gpu_xid_code_errors_total": "with the time of the last: a single event has no increase later",
    "gpuslice_gpu_events_total": "likewise",
    "gpuslice_collector_errors_total": "listed since the exporter's start, with the reason",
    "gpuslice_nvml_errors_total": "listed since the exporter's start, with the error",
}
"""Counters that are shown as they are, and why."""
UNITS = {
    *("none", "short", "string", "locale", "percentunit", "bool", "bool_yes_no", "ops", "fps", "rotrpm"),
    *("bytes", "decbytes", "binBps", "Bps", "hertz", "celsius", "watt", "joule", "watth", "kwatth"),
    *("s", "dtdurations", "dateTimeFromNow", "dateTimeAsIso"),
}
"""Units of Grafana that are right for base units; a suffix of our own begins with "suffix:"."""

each_board = pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)


def _drawn(board: dict[str, Any]) -> Iterator[Mapping[str, Any]]:
    return (panel for panel in panels(board) if panel["type"] != "text")


def _queries(board: dict[str, Any]) -> Iterator[tuple[Mapping[str, Any], str]]:
    return ((panel, target["expr"]) for panel in _drawn(board) for target in panel["targets"])


@each_board
def test_queries_of_variables_have_one_line(board: dict[str, Any]) -> None:
    """Grafana takes a query of several lines for the name of a series, and is answered with an error."""
    asked = [each for each in board["templating"]["list"] if each["type"] == "query"]

    assert not [each["name"] for each in asked if "\n" in each["query"]]


@each_board
def test_panels_have_a_title_and_a_description(board: dict[str, Any]) -> None:
    """Every panel says what it shows, in whole sentences."""
    assert not [each for each in _drawn(board) if not each["title"] or not each["description"].endswith(".")]


@each_board
def test_numbers_have_a_unit(board: dict[str, Any]) -> None:
    """Every number has a unit that Grafana has: of the panel, or in a table of its column."""
    for panel in _drawn(board):
        units = [
            found["value"]
            for override in panel["fieldConfig"]["overrides"]
            for found in override["properties"]
            if found["id"] == "unit"
        ]
        if panel["type"] != "table":
            units.append(panel["fieldConfig"]["defaults"].get("unit"))
        wrong = [unit for unit in units if unit not in UNITS and not str(unit).startswith("suffix:")]
        assert not wrong, panel["title"]


@each_board
def test_rates_look_back_over_the_rate_interval(board: dict[str, Any]) -> None:
    """rate() goes by $__rate_interval, so that no scrape is left out when one looks at days."""
    wanted = Window(0).values["__rate_interval"]
    for panel, expr in _queries(board):
        for selector in parts(expr).selectors:
            assert selector.function not in ("rate", "irate") or selector.range == wanted, panel["title"]


@each_board
def test_counters_are_shown_by_their_increase(board: dict[str, Any]) -> None:
    """A counter is shown by what it grew, unless it is told as it stands for a reason."""
    for panel, expr in _queries(board):
        assert set(bare_counters(parts(expr), COUNTERS)) <= SHOWN_AS_TOTALS.keys(), panel["title"]


def test_every_exception_is_needed() -> None:
    """Every counter that may be told as it stands is."""
    told = {
        name
        for board in BOARDS.values()
        for _, expr in _queries(board)
        for name in bare_counters(parts(expr), COUNTERS)
    }

    assert told == SHOWN_AS_TOTALS.keys()


def test_queries_of_panels_and_variables_are_promql(tmp_path: Path) -> None:
    """Every query of a panel and every variable is PromQL to promtool."""
    texts = [expr for board in BOARDS.values() for _, expr in _queries(board)]
    for board in BOARDS.values():
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                function, _, argument = variable["query"].removesuffix(")").partition("(")
                assert function in ("label_values", "query_result")
                texts.append(argument.rpartition(",")[0] if function == "label_values" else argument)
    rules = [{"record": f"r{number}", "expr": expanded(text)} for number, text in enumerate(texts)]
    path = tmp_path / "rules.yaml"
    path.write_text(json.dumps({"groups": [{"name": "all", "rules": rules}]}))

    found = subprocess.run(
        [program("promtool"), "check", "rules", str(path)], capture_output=True, text=True, check=False
    )

    assert found.returncode == 0, found.stderr
