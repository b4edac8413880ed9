"""The dashboards as files: the committed ones are what the code makes, and Grafana can import them."""

import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

import dashboards
from alerts.thresholds import load_thresholds
from dashboards.fleet import RUNBOOKS
from dashboards.write import BOARDS, board_files
from tests.product.dashboards.boards import FILES, each_board, queries
from tests.product.dashboards.grafana import panels

FOLDER = Path(dashboards.__file__).parent
WIDTH = 24
USE = re.compile(r"\$\{?([a-zA-Z]\w*)")


def _with_rows(board: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for panel in board["panels"] for one in (panel, *(panel.get("panels") or ()))]


def _rows(board: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Return the panels between headings, and those inside of collapsed rows."""
    rows: list[list[dict[str, Any]]] = [[]]
    for panel in board["panels"]:
        if panel["type"] == "row":
            rows += [list(panel.get("panels") or ()), []]
        else:
            rows[-1].append(panel)
    return [row for row in rows if row]


def test_committed_files_are_what_the_code_makes() -> None:
    committed = {f"json/{path.name}": path.read_text(encoding="utf-8") for path in FOLDER.glob("json/*")}

    assert committed == board_files(), "run make dashboards"


def test_uids_and_file_names_stay_as_they_are() -> None:
    """Links and alerts lead to dashboards by uid, and Grafana replaces those with a uid that it has."""
    assert {name: board["uid"] for name, board in FILES.items()} == {
        name: f"gpuslice-{name}" for name in ("fleet", "node", "tenant", "hardware")
    }


@each_board
def test_a_file_can_be_imported_into_any_grafana(board: dict[str, Any]) -> None:
    """It has the schema of Grafana 10.0, no id of a database, and nothing to fill in."""
    ids = [panel["id"] for panel in _with_rows(board)]

    assert board["schemaVersion"] == 38
    assert board.keys().isdisjoint({"__inputs", "__requires", "__elements", "id", "version", "iteration"})
    assert len(set(ids)) == len(ids) > 0


@each_board
def test_everything_queries_the_chosen_data_source(board: dict[str, Any]) -> None:
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    drawn = [panel for panel in panels(board) if panel["type"] != "text"]
    targets = [target for _, target in queries(board)]
    variables = [each for each in board["templating"]["list"] if each["type"] == "query"]

    assert targets
    assert all(each["datasource"] == chosen for each in (*drawn, *targets, *variables))


@each_board
def test_dashboards_link_to_each_other_by_their_tag(board: dict[str, Any]) -> None:
    assert board["tags"] == ["gpuslice"]
    assert board["title"].startswith("GPU slices / ")
    assert [(link["tags"], link["includeVars"], link["keepTime"]) for link in board["links"]] == [
        (["gpuslice"], True, True)
    ]


@each_board
def test_links_lead_to_dashboards_and_variables_that_exist(board: dict[str, Any]) -> None:
    variables = {
        each["uid"]: {variable["name"] for variable in each["templating"]["list"]} for each in FILES.values()
    }
    for path in re.findall(r'"(/d/[^"]+)', json.dumps(board).replace('\\"', "'")):
        uid, _, query = path.removeprefix("/d/").partition("?")
        assert set(re.findall(r"var-(\w+)=", query)) <= variables[uid], path


@each_board
def test_every_variable_in_a_text_exists_and_every_variable_is_used(board: dict[str, Any]) -> None:
    """Grafana leaves an unknown name in the query as it is."""
    variables = {variable["name"] for variable in board["templating"]["list"]}
    texts = [target["expr"] for _, target in queries(board)]
    texts += [str(variable["query"]) for variable in board["templating"]["list"]]
    texts += [panel.get("title") or "" for panel in _with_rows(board)]
    used = {name for text in texts for name in USE.findall(text) if not name.startswith("__")}

    assert used <= variables
    assert variables <= set(USE.findall(json.dumps(board)))


@each_board
def test_panels_fill_the_width_without_overlap(board: dict[str, Any]) -> None:
    """A panel alone may be narrower."""
    for row in _rows(board):
        cells: set[tuple[int, int]] = set()
        for place in (panel["gridPos"] for panel in row):
            xs, ys = (
                range(place[start], place[start] + place[size]) for start, size in (("x", "w"), ("y", "h"))
            )
            own = {(x, y) for x in xs for y in ys}
            assert xs.stop <= WIDTH
            assert cells.isdisjoint(own)
            cells |= own
        for top in {panel["gridPos"]["y"] for panel in row}:
            titles = [panel["title"] for panel in row if panel["gridPos"]["y"] == top]
            if len(titles) > 1:
                assert {x for x, y in cells if y == top} == set(range(WIDTH)), titles


@each_board
def test_titles_of_a_row_differ(board: dict[str, Any]) -> None:
    for row in _rows(board):
        titles = [panel["title"] for panel in row]
        assert len(set(titles)) == len(titles)


def test_alerts_in_the_dashboard_link_to_the_runbooks_of_the_rules() -> None:
    assert load_thresholds().rules.runbook_url == RUNBOOKS


@pytest.mark.parametrize("make", BOARDS, ids=lambda make: make.__name__)
def test_panels_that_may_be_empty_exist_and_have_a_reason(make) -> None:
    may_be_empty = getattr(importlib.import_module(make.__module__), "MAY_BE_EMPTY", {})
    titles = {panel["title"] for panel in panels(FILES[make.__name__])}

    assert may_be_empty.keys() <= titles
    assert all(may_be_empty.values())
