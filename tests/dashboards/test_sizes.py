"""A person can read each query, and see each dashboard at a glance."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import pytest

from exporter.metrics import FAMILIES
from exporter.metrics.selection import has
from tests.dashboards.grafana import panels

BOARDS = {
    path.stem: json.loads(path.read_text())
    for path in (Path(__file__).parents[2] / "dashboards/json").glob("*.json")
}
TITLE = 28
"""Letters of a title that a stat of four columns shows on a screen of 1,366 pixels."""
STANDARD_ONLY = {family.name for family in FAMILIES if not has("core", family)}

each_board = pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)


def _lengths(board: dict[str, Any]) -> list[int]:
    return [len(target["expr"]) for panel in panels(board) for target in panel["targets"]]


def _open(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the panels before the first collapsed row, and the headings among them."""
    for panel in board["panels"]:
        if panel.get("collapsed"):
            return
        yield panel


def test_queries_are_short() -> None:
    """Of all dashboards together: one to three lines."""
    lengths = [length for board in BOARDS.values() for length in _lengths(board)]

    assert len(lengths) > 200
    assert median(lengths) <= 120
    assert quantiles(lengths, n=10)[-1] <= 250
    assert max(lengths) <= 500


@each_board
def test_nine_of_ten_queries_of_a_dashboard_are_short(board: dict[str, Any]) -> None:
    """None is left out by the others."""
    lengths = _lengths(board)

    assert median(lengths) <= 130
    assert quantiles(lengths, n=10, method="inclusive")[-1] <= 250


@each_board
def test_what_is_open_is_two_screens(board: dict[str, Any]) -> None:
    """Rows of a screen of 900 pixels are 24; a load of the dashboard asks few queries."""
    seen = list(_open(board))

    assert 20 < max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in seen) <= 50
    assert sum(len(panel.get("targets") or ()) for panel in seen) <= 28


@each_board
def test_titles_are_not_cut(board: dict[str, Any]) -> None:
    """No title of a panel is longer than the narrowest one shows."""
    assert [panel["title"] for panel in panels(board) if len(panel["title"]) > TITLE] == []
    assert [panel["title"] for panel in panels(board) if panel["gridPos"]["w"] < 4] == []


@each_board
def test_columns_have_a_width(board: dict[str, Any]) -> None:
    """In a table at least all columns but two have one, so that it does not scroll or jump."""
    for panel in panels(board):
        if panel["type"] == "table":
            columns = [
                each for each in panel["fieldConfig"]["overrides"] if each["matcher"]["id"] == "byName"
            ]
            free = [
                each["matcher"]["options"]
                for each in columns
                if "custom.width" not in {found["id"] for found in each["properties"]}
            ]
            assert len(free) <= 2, (panel["title"], free)


@each_board
def test_panels_say_which_set_of_series_they_need(board: dict[str, Any]) -> None:
    """One that the default series do not fill says so."""
    for panel in panels(board):
        named = {name for target in panel["targets"] for name in re.findall(r"gpuslice_\w+", target["expr"])}
        assert bool(named & STANDARD_ONLY) <= ("--metric-set standard" in panel["description"]), panel[
            "title"
        ]
