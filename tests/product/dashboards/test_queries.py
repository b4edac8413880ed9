"""Queries, units and texts of panels."""

import json
import subprocess
from pathlib import Path
from typing import Any

from exporter.metrics import FAMILIES
from exporter.metrics.dcgm import DCGM
from tests.product.dashboards.boards import FILES, each_board, queries, variable_queries
from tests.product.dashboards.expressions import bare_counters, expanded, parts
from tests.product.dashboards.grafana import Window, panels
from tests.tools import tool

COUNTERS = frozenset(family.name for family in (*FAMILIES, *DCGM["both"]) if family.type == "counter")
# Counters that are shown as totals, and why.
SHOWN_AS_TOTALS = {
    "gpuslice_gpu_ecc_errors_total": "since the driver was loaded, or ever: a board is judged by that",
    "gpuslice_gpu_ecc_location_errors_total": "likewise, by the part of the chip",
    "gpuslice_gpu_xid_code_errors_total": "with the time of the last: a single event has no increase later",
    "gpuslice_gpu_events_total": "likewise",
    "gpuslice_collector_errors_total": "listed since the exporter's start, with the reason",
    "gpuslice_nvml_errors_total": "listed since the exporter's start, with the error",
}
# Units of Grafana that are right for base units; a suffix of our own begins with "suffix:".
UNITS = {
    *("none", "short", "string", "locale", "percentunit", "bool", "bool_yes_no", "ops", "fps", "rotrpm"),
    *("bytes", "decbytes", "binBps", "Bps", "hertz", "celsius", "watt", "joule", "watth", "kwatth"),
    *("s", "dtdurations", "dateTimeFromNow", "dateTimeAsIso"),
}


@each_board
def test_variables_have_queries_of_one_line(board: dict[str, Any]) -> None:
    """Grafana takes several lines for the name of a series, and gets an error."""
    assert not [name for name, expr, _ in variable_queries(board) if "\n" in expr]


@each_board
def test_panels_have_a_title_and_a_description_in_sentences(board: dict[str, Any]) -> None:
    drawn = [panel for panel in panels(board) if panel["type"] != "text"]

    assert not [panel for panel in drawn if not panel["title"] or not panel["description"].endswith(".")]


@each_board
def test_numbers_have_a_unit(board: dict[str, Any]) -> None:
    """In a table the columns have them."""
    for panel in panels(board):
        config = panel["fieldConfig"]
        properties = [each for override in config["overrides"] for each in override["properties"]]
        units = [each["value"] for each in properties if each["id"] == "unit"]
        if panel["type"] not in ("table", "text"):
            units.append(config["defaults"].get("unit"))
        wrong = [unit for unit in units if unit not in UNITS and not str(unit).startswith("suffix:")]
        assert not wrong, panel["title"]


@each_board
def test_rates_are_over_the_rate_interval(board: dict[str, Any]) -> None:
    """So no scrape is left out of a view of days."""
    expected = Window(0).values["__rate_interval"]
    for panel, target in queries(board):
        for selector in parts(target["expr"]).selectors:
            assert selector.function not in ("rate", "irate") or selector.range == expected, panel["title"]


def test_counters_are_shown_by_their_increase_with_exceptions() -> None:
    totals = {
        name
        for board in FILES.values()
        for _, target in queries(board)
        for name in bare_counters(parts(target["expr"]), COUNTERS)
    }

    assert totals == SHOWN_AS_TOTALS.keys()


def test_promtool_accepts_the_queries_of_panels_and_variables(tmp_path: Path) -> None:
    texts = [target["expr"] for board in FILES.values() for _, target in queries(board)]
    texts += [expr for board in FILES.values() for _, expr, _ in variable_queries(board)]
    rules = [{"record": f"r{number}", "expr": expanded(text)} for number, text in enumerate(texts)]
    path = tmp_path / "rules.yaml"
    path.write_text(json.dumps({"groups": [{"name": "all", "rules": rules}]}))

    command = [tool("promtool"), "check", "rules", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
