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
TITLE, LETTERS = 19, 7
"""Letters of a title that a panel of four columns shows on a screen of 1,366 pixels, and each further one."""
# Pixels of one of the 24 columns of a dashboard on that screen, and of the frame of a panel; and the least
# that a column of text needs.
COLUMN, FRAME, NARROWEST = 55.9, 26, 150
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
    """None is left out by the others. The selection of the pods of a tenant alone takes 71 characters."""
    lengths = _lengths(board)

    assert median(lengths) <= 150
    assert quantiles(lengths, n=10, method="inclusive")[-1] <= 250


@each_board
def test_what_is_open_is_two_screens(board: dict[str, Any]) -> None:
    """Rows of a screen of 900 pixels are 24; a load of the dashboard asks few queries."""
    seen = list(_open(board))

    assert 20 < max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in seen) <= 50
    assert sum(len(panel.get("targets") or ()) for panel in seen) <= 28


@each_board
def test_titles_are_not_cut(board: dict[str, Any]) -> None:
    """No title of a panel is longer than it shows."""
    shown = {panel["title"]: TITLE + LETTERS * (panel["gridPos"]["w"] - 4) for panel in panels(board)}
    assert [title for title, letters in shown.items() if len(title) > letters] == []
    assert [panel["title"] for panel in panels(board) if panel["gridPos"]["w"] < 4] == []


@each_board
def test_tables_fit(board: dict[str, Any]) -> None:
    """On a screen of 1,366 pixels all columns are seen whole; one of them may take what is left."""
    wrong = []
    for panel in panels(board):
        if panel["type"] == "table":
            widths = _widths(panel)
            free = [title for title, width in widths.items() if width is None]
            rest = COLUMN * panel["gridPos"]["w"] - FRAME - sum(filter(None, widths.values()))
            if len(free) > 1 or rest < NARROWEST * len(free):
                wrong.append(f"{panel['title']}: {rest:.0f} pixels left for {free}")
    assert wrong == []


def _widths(panel: dict[str, Any]) -> dict[str, int | None]:
    """Return the width in pixels of each column of a table by its title."""
    return {
        override["matcher"]["options"]: next(
            (each["value"] for each in override["properties"] if each["id"] == "custom.width"), None
        )
        for override in panel["fieldConfig"]["overrides"]
        if override["matcher"]["id"] == "byName"
    }


@each_board
def test_panels_say_which_set_of_series_they_need(board: dict[str, Any]) -> None:
    """One that the default series do not fill says so."""
    for panel in panels(board):
        named = {name for target in panel["targets"] for name in re.findall(r"gpuslice_\w+", target["expr"])}
        assert bool(named & STANDARD_ONLY) <= ("--metric-set standard" in panel["description"]), panel[
            "title"
        ]
