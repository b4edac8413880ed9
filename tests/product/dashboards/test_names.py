"""Every series and label in the dashboards exists."""

import re
from collections.abc import Iterator
from typing import Any

from exporter.metrics import FAMILIES
from tests.product.dashboards.boards import each_board, queries, variable_queries
from tests.product.dashboards.expressions import Parts, parts
from tests.product.dashboards.records import OTHERS, RECORDS, series_labels

LEGEND = re.compile(r"\{\{\s*(\w+)\s*\}\}")
SERIES = {family.name for family in FAMILIES} | RECORDS | OTHERS.keys()


def _queries(board: dict[str, Any]) -> Iterator[tuple[str, Parts, set[str]]]:
    """Yield title, expression and labels in the legend of every query, those of variables too."""
    for panel, target in queries(board):
        legend = set(LEGEND.findall(target.get("legendFormat", "")))
        yield panel["title"], parts(target["expr"]), legend
    for name, expr, label in variable_queries(board):
        yield name, parts(expr), {label} - {""}


@each_board
def test_every_series_is_exported_or_recorded(board) -> None:
    wrong = [
        (title, selector.name)
        for title, expr, _ in _queries(board)
        for selector in expr.selectors
        if selector.name not in SERIES
    ]

    assert not wrong


@each_board
def test_matchers_are_of_labels_that_the_series_has(board) -> None:
    """Otherwise they would select all of it, or nothing."""
    wrong = [
        (title, selector.name, unknown)
        for title, expr, _ in _queries(board)
        for selector in expr.selectors
        if (unknown := {label for label, _, _ in selector.matchers} - series_labels(selector.name))
    ]

    assert not wrong


@each_board
def test_groups_joins_and_legends_are_of_labels_that_the_query_has(board) -> None:
    wrong = []
    for title, expr, legend in _queries(board):
        known = expr.made.union(*(series_labels(selector.name) for selector in expr.selectors))
        if unknown := (expr.labels | legend) - known:
            wrong.append((title, unknown))

    assert not wrong
