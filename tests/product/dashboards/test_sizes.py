"""Queries are short, and dashboards fit on a screen."""

import re
from itertools import takewhile
from statistics import median, quantiles
from typing import Any

from exporter.metrics import FAMILIES
from exporter.metrics.selection import has
from tests.product.dashboards.boards import each_board, queries
from tests.product.dashboards.grafana import panels

# On a screen of 1,366 pixels: letters of a title that four columns show, and each further column;
# pixels of one of the 24 columns and of the frame of a panel; and the least that a column of text needs.
TITLE, LETTERS = 19, 7
COLUMN, FRAME, NARROWEST = 55.9, 26, 150
STANDARD_ONLY = {family.name for family in FAMILIES if not has("core", family)}


@each_board
def test_queries_are_short(board: dict[str, Any]) -> None:
    """The selection of the pods of a tenant alone takes 71 characters."""
    lengths = [len(target["expr"]) for _, target in queries(board)]

    assert len(lengths) > 20
    assert median(lengths) <= 150
    assert quantiles(lengths, n=10, method="inclusive")[-1] <= 250
    assert max(lengths) <= 500


@each_board
def test_open_rows_are_two_screens_with_few_queries(board: dict[str, Any]) -> None:
    """24 rows fit on a screen of 900 pixels."""
    shown = list(takewhile(lambda panel: not panel.get("collapsed"), board["panels"]))

    assert 20 < max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in shown) <= 50
    assert sum(len(panel.get("targets") or ()) for panel in shown) <= 28


@each_board
def test_titles_fit_into_their_panels(board: dict[str, Any]) -> None:
    letters = {panel["title"]: TITLE + LETTERS * (panel["gridPos"]["w"] - 4) for panel in panels(board)}
    assert [title for title, limit in letters.items() if len(title) > limit] == []
    assert [panel["title"] for panel in panels(board) if panel["gridPos"]["w"] < 4] == []


@each_board
def test_all_columns_of_tables_fit(board: dict[str, Any]) -> None:
    """One column may take the rest of the width."""
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
def test_panels_that_the_default_series_do_not_fill_name_the_option(board: dict[str, Any]) -> None:
    for panel in panels(board):
        series = {name for target in panel["targets"] for name in re.findall(r"gpuslice_\w+", target["expr"])}
        if series & STANDARD_ONLY:
            assert "--metric-set standard" in panel["description"], panel["title"]
