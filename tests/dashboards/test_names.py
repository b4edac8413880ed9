"""Every series and label that the dashboards name is one that there is."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dashboards.write import board_files
from exporter.metrics import FAMILIES
from tests.dashboards.expressions import Parts, Selector, parts
from tests.dashboards.grafana import panels
from tests.dashboards.records import OTHERS, RECORDS, series_labels

BOARDS = {Path(path).stem: json.loads(text) for path, text in board_files().items()}
LEGEND = re.compile(r"\{\{\s*(\w+)\s*\}\}")

each_board = pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)


def _queries(board: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """List title, expression and legend of every query, those of variables too."""
    for panel in panels(board):
        for target in panel.get("targets") or ():
            yield panel["title"], target["expr"], target.get("legendFormat", "")
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            function, _, inside = variable["query"].removesuffix(")").partition("(")
            if function == "label_values":
                inside, _, label = inside.rpartition(",")
                yield variable["name"], inside, f"{{{{{label.strip()}}}}}"
            else:
                yield variable["name"], inside, ""


def _known(found: Parts) -> frozenset[str]:
    return found.made.union(*(series_labels(selector.name) for selector in found.selectors))


def _unread(selector: Selector) -> set[str]:
    return {label for label, _, _ in selector.matchers} - series_labels(selector.name)


@each_board
def test_every_series_is_exported_or_recorded(board) -> None:
    """A name is in the exporter's tables, or is a rule of ours, or is Prometheus's own."""
    known = {family.name for family in FAMILIES} | RECORDS | OTHERS.keys()
    wrong = {
        (title, selector.name)
        for title, expr, _ in _queries(board)
        for selector in parts(expr).selectors
        if selector.name not in known
    }

    assert not wrong


@each_board
def test_matchers_are_of_labels_that_the_series_has(board) -> None:
    """A matcher of a label that a series never has would select all of it, or nothing."""
    wrong = [
        (title, selector.name, _unread(selector))
        for title, expr, _ in _queries(board)
        for selector in parts(expr).selectors
        if _unread(selector)
    ]

    assert not wrong


@each_board
def test_groups_joins_and_legends_are_of_labels_that_there_are(board) -> None:
    """Each is on some of the series of its query, or made by it."""
    wrong = [
        (title, unknown)
        for title, expr, legend in _queries(board)
        if (unknown := (parts(expr).labels | set(LEGEND.findall(legend))) - _known(parts(expr)))
    ]

    assert not wrong
