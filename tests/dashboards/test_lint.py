"""The rules of Grafana's dashboard-linter, for every kind of panel.

Its rules about Loki have nothing to judge here, and four do not fit: template-job, template-instance,
target-job and target-instance want the variables ``job`` and ``instance``, and both in every selector. These
dashboards are chosen by cluster, node, namespace and pod, and series are joined by job and instance.
"""

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
TOLD_AS_THEY_ARE = {
    "gpuslice_gpu_ecc_errors_total": "since the driver was loaded, or ever: a board is judged by that",
    "gpuslice_gpu_ecc_location_errors_total": "likewise, by the part of the chip",
    "gpuslice_gpu_xid_code_errors_total": "beside the time of the last: what happened once grows no more",
    "gpuslice_gpu_events_total": "likewise",
    "gpuslice_collector_errors_total": "listed since the exporter's start, with the reason",
    "gpuslice_nvml_errors_total": "listed since the exporter's start, with the error",
}
"""Counters that are shown as they stand, and why."""
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
def test_template_datasource(board: dict[str, Any]) -> None:
    """The source of data is a variable with the name and label that the linter wants."""
    found = [each for each in board["templating"]["list"] if each["type"] == "datasource"]

    assert [(each["name"], each["label"], each["query"]) for each in found] == [
        ("datasource", "Data source", "prometheus")
    ]


@each_board
def test_template_on_time_change_reload(board: dict[str, Any]) -> None:
    """Variables are asked again when the time range changes."""
    asked = [each for each in board["templating"]["list"] if each["type"] == "query"]

    assert {each["name"]: each["refresh"] for each in asked} == dict.fromkeys(
        (each["name"] for each in asked), 2
    )


@each_board
def test_queries_of_variables_are_one_line(board: dict[str, Any]) -> None:
    """Grafana takes a query of several lines for the name of a series, and is answered with an error."""
    asked = [each for each in board["templating"]["list"] if each["type"] == "query"]

    assert not [each["name"] for each in asked if "\n" in each["query"]]


@each_board
def test_uneditable_dashboard(board: dict[str, Any]) -> None:
    """What is changed in Grafana would be lost with the next import."""
    assert board["editable"] is False


@each_board
def test_panel_datasource(board: dict[str, Any]) -> None:
    """Every panel asks the source that was chosen."""
    assert not [each["title"] for each in _drawn(board) if each["datasource"]["uid"] != "${datasource}"]


@each_board
def test_panel_title_description(board: dict[str, Any]) -> None:
    """Every panel says what it shows, in whole sentences."""
    assert not [each for each in _drawn(board) if not each["title"] or not each["description"].endswith(".")]


@each_board
def test_panel_no_targets(board: dict[str, Any]) -> None:
    """Every panel asks for something, and each of its queries has a name of its own."""
    for panel in _drawn(board):
        names = [target["refId"] for target in panel["targets"]]
        assert names, panel["title"]
        assert len(set(names)) == len(names), panel["title"]


@each_board
def test_panel_units(board: dict[str, Any]) -> None:
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
def test_target_rate_interval(board: dict[str, Any]) -> None:
    """rate() goes by $__rate_interval, so that no scrape is left out when one looks at days."""
    wanted = Window(0).values["__rate_interval"]
    for panel, expr in _queries(board):
        for selector in parts(expr).selectors:
            assert selector.function not in ("rate", "irate") or selector.range == wanted, panel["title"]


@each_board
def test_target_counter_agg(board: dict[str, Any]) -> None:
    """A counter is shown by what it grew, unless it is told as it stands for a reason."""
    for panel, expr in _queries(board):
        assert set(bare_counters(parts(expr), COUNTERS)) <= TOLD_AS_THEY_ARE.keys(), panel["title"]


def test_no_exception_is_left_over() -> None:
    """Every counter that may be told as it stands is."""
    told = {
        name
        for board in BOARDS.values()
        for _, expr in _queries(board)
        for name in bare_counters(parts(expr), COUNTERS)
    }

    assert told == TOLD_AS_THEY_ARE.keys()


def test_target_and_template_promql(tmp_path: Path) -> None:
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
