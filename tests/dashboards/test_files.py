"""The dashboards as files: what is committed is what the code makes, and Grafana can import it."""

import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

import dashboards
from alerts.thresholds import load_thresholds
from dashboards.fleet import RUNBOOKS
from dashboards.write import BOARDS, board_files
from tests.dashboards.grafana import panels

ROOM = Path(dashboards.__file__).parent
FILES = {path: json.loads(text) for path, text in board_files().items()}
WIDTH = 24
USE = re.compile(r"\$\{?([a-zA-Z]\w*)")

each_board = pytest.mark.parametrize("board", FILES.values(), ids=[Path(path).stem for path in FILES])


def _every_panel(board: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for panel in board["panels"] for one in (panel, *(panel.get("panels") or ()))]


def _rows(board: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Give the panels between one heading and the next, and those inside of each closed one."""
    found: list[list[dict[str, Any]]] = [[]]
    for panel in board["panels"]:
        if panel["type"] == "row":
            found += [list(panel.get("panels") or ()), []]
        else:
            found[-1].append(panel)
    return [row for row in found if row]


def test_committed_files_are_what_the_code_makes() -> None:
    """Nobody edits them by hand, and nobody forgets to write them: else run `make dashboards`."""
    committed = {f"json/{path.name}": path.read_text(encoding="utf-8") for path in ROOM.glob("json/*")}

    assert committed == board_files(), "run make dashboards"


@each_board
def test_the_typed_model_loses_nothing(board: dict[str, Any]) -> None:
    """A file that is read into Grafana's model and written again is the same."""
    again = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(board)))
    known = json.loads(json.dumps(board))
    for annotation in known["annotations"]["list"]:
        # Grafana's model has no texts of marks.
        annotation.pop("titleFormat", None)

    assert again == known


@each_board
def test_numbers_of_panels_are_unique(board: dict[str, Any]) -> None:
    """Every panel has its own, those of closed rows too."""
    numbers = [panel["id"] for panel in _every_panel(board)]

    assert numbers
    assert len(set(numbers)) == len(numbers)


def test_uids_are_kept_for_ever() -> None:
    """Links and alerts lead to dashboards by uid, and Grafana replaces those that it knows."""
    assert {board["uid"] for board in FILES.values()} == {
        "gpuslice-fleet",
        "gpuslice-node",
        "gpuslice-tenant",
        "gpuslice-hardware",
    }
    assert all(path == f"json/{board['uid']}.json" for path, board in FILES.items())


@each_board
def test_a_file_belongs_to_no_grafana(board: dict[str, Any]) -> None:
    """It has the schema of Grafana 10.0, no number of a database, and asks nothing when it is imported."""
    assert board["schemaVersion"] == 38
    assert board.keys().isdisjoint({"__inputs", "__requires", "__elements", "id", "version", "iteration"})


@each_board
def test_the_source_of_data_is_the_variable(board: dict[str, Any]) -> None:
    """Panels, queries and variables ask the Prometheus that was chosen above."""
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    asking = [panel for panel in _every_panel(board) if panel["type"] not in ("row", "text")]
    targets = [target for panel in asking for target in panel["targets"]]
    variables = [each for each in board["templating"]["list"] if each["type"] == "query"]

    assert targets
    assert all(each["datasource"] == chosen for each in (*asking, *targets, *variables))


@each_board
def test_dashboards_lead_to_each_other(board: dict[str, Any]) -> None:
    """All have the tag, and a link to whatever has it, which keeps what was chosen."""
    assert board["tags"] == ["gpuslice"]
    assert board["title"].startswith("GPU slices / ")
    assert [(link["tags"], link["includeVars"], link["keepTime"]) for link in board["links"]] == [
        (["gpuslice"], True, True)
    ]


@each_board
def test_links_lead_to_dashboards_and_variables_that_there_are(board: dict[str, Any]) -> None:
    """A click on a cell opens one of these dashboards, and sets variables that it has."""
    variables = {
        each["uid"]: {variable["name"] for variable in each["templating"]["list"]} for each in FILES.values()
    }
    for path in re.findall(r'"(/d/[^"]+)', json.dumps(board).replace('\\"', "'")):
        uid, _, query = path.removeprefix("/d/").partition("?")
        assert set(re.findall(r"var-(\w+)=", query)) <= variables[uid], path


@each_board
def test_every_variable_that_is_used_is_there(board: dict[str, Any]) -> None:
    """A name that is no variable would stand in the query as it is."""
    known = {variable["name"] for variable in board["templating"]["list"]}
    used = {
        name
        for text in (
            *(target["expr"] for panel in panels(board) for target in panel.get("targets") or ()),
            *(str(variable["query"]) for variable in board["templating"]["list"]),
            *(panel.get("title") or "" for panel in _every_panel(board)),
        )
        for name in USE.findall(text)
    }

    assert {name for name in used if not name.startswith("__")} <= known


@each_board
def test_every_variable_is_used(board: dict[str, Any]) -> None:
    """Nobody is asked for something that changes nothing."""
    text = json.dumps(board)

    for variable in board["templating"]["list"]:
        assert re.search(rf"\$\{{?{variable['name']}\b", text), variable["name"]


@each_board
def test_panels_lie_side_by_side(board: dict[str, Any]) -> None:
    """None passes the edge, none covers another, and a line of several panels is full."""
    for row in _rows(board):
        cells: set[tuple[int, int]] = set()
        for place in (panel["gridPos"] for panel in row):
            assert place["x"] + place["w"] <= WIDTH
            own = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert cells.isdisjoint(own)
            cells |= own
        tops = {panel["gridPos"]["y"] for panel in row}
        for top in tops:
            beside = [panel for panel in row if panel["gridPos"]["y"] == top]
            titles = [panel["title"] for panel in beside]
            if len(beside) > 1:
                assert {x for x, y in cells if y == top} == set(range(WIDTH)), titles


@each_board
def test_titles_of_a_row_differ(board: dict[str, Any]) -> None:
    """Two panels beside each other are not called the same."""
    for row in _rows(board):
        titles = [panel["title"] for panel in row]
        assert len(set(titles)) == len(titles)


def test_alerts_lead_to_their_runbooks() -> None:
    """The folder of the runbooks is that of the rules."""
    assert load_thresholds().rules.runbook_url == RUNBOOKS


@pytest.mark.parametrize("make", BOARDS, ids=lambda make: make.__name__)
def test_what_may_be_empty_is_a_panel(make) -> None:
    """Each title that a dashboard excuses is that of a panel, with a reason."""
    excused = getattr(importlib.import_module(make.__module__), "MAY_BE_EMPTY", {})
    titles = {panel["title"] for panel in panels(FILES[f"json/{make().uid}.json"])}

    assert excused.keys() <= titles
    assert all(excused.values())
