"""Values look like what they mean: an outage, an unknown value, a series among others."""

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dashboards.write import board_files
from tests.dashboards.grafana import panels
from tests.dashboards.looks import PALETTE, Shown, band, column, link, links, shown

BOARDS = {Path(path).stem: json.loads(text) for path, text in board_files().items()}
TEXT = "text"
"""The colour of plain text, which judges nothing."""

each_board = pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)


def _of(board: dict[str, Any], *kinds: str) -> Iterator[dict[str, Any]]:
    return (panel for panel in panels(board) if panel["type"] in kinds)


def _coloured_columns(panel: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for override in panel["fieldConfig"]["overrides"]:
        if any(each["id"] == "custom.cellOptions" for each in override["properties"]):
            title = override["matcher"]["options"]
            yield title, dict(column(panel, title))


@each_board
def test_a_row_of_no_single_gpu_leads_to_all_of_them(board: dict[str, Any]) -> None:
    """A link of a row without a uuid chooses all GPUs, or leaves the choice as it is."""
    for panel in _of(board, "table"):
        for url in links(panel):
            led = re.findall(r"var-uuid=([^&]*)", link(panel, url, {"node": "n1"}))
            assert led in ([], ["$__all"]), panel["title"]


def test_grafana_shows_values_as_it_does() -> None:
    """The first mapping that fits decides, else the threshold; without a value that is the lowest one."""
    words = {"type": "value", "options": {"1": {"text": "yes", "color": "red"}}}
    unknown = {"type": "special", "options": {"match": "nan", "result": {"text": "-", "color": TEXT}}}
    steps = {"steps": [{"value": None, "color": "orange"}, {"value": 10, "color": TEXT}]}
    config = {"mappings": [words, unknown], "thresholds": steps, "noValue": "unknown"}

    assert shown(config, 1) == Shown("yes", "red")
    assert shown(config, 3) == Shown("3", "orange")
    assert shown(config, 12) == Shown("12", TEXT)
    assert shown(config, math.nan) == Shown("-", TEXT)
    assert shown(config, None) == Shown("-", TEXT)
    assert shown({"noValue": "unknown"}, None) == Shown("unknown", "green")


def test_grafana_merges_the_values_of_a_threshold() -> None:
    """A state timeline that is coloured by thresholds forgets its mappings, if it merges values."""
    words = {"type": "value", "options": {"0": {"text": "down", "color": "red"}}}
    steps = {"steps": [{"value": None, "color": TEXT}]}
    defaults = {"mappings": [words], "thresholds": steps, "color": {"mode": "thresholds"}}
    panel = {"options": {"mergeValues": True}, "fieldConfig": {"defaults": defaults}}

    assert band(panel, 0) == Shown("-∞+", TEXT)
    defaults["color"] = {"mode": "fixed", "fixedColor": TEXT}
    assert band(panel, 0) == Shown("down", "red")


@each_board
def test_bands_say_what_their_values_mean(board: dict[str, Any]) -> None:
    """In a state timeline each value has its word and its colour: an outage does not look like health."""
    for panel in _of(board, "state-timeline"):
        meant = [each for each in panel["fieldConfig"]["defaults"]["mappings"] if each["type"] == "value"]
        assert meant, panel["title"]
        for value, result in meant[0]["options"].items():
            expected = Shown(result["text"], result["color"])
            assert band(panel, float(value)) == expected, panel["title"]


@each_board
def test_series_are_told_apart_by_colour(board: dict[str, Any]) -> None:
    """Lines and bars of one panel have different colours."""
    for panel in _of(board, "timeseries", "bargauge"):
        config = panel["fieldConfig"]["defaults"]
        assert len({shown(config, 1, place).colour for place in range(PALETTE)}) == PALETTE, panel["title"]


@each_board
def test_unknown_numbers_have_the_colour_of_text(board: dict[str, Any]) -> None:
    """A number that is not known is neither good nor bad."""
    for panel in _of(board, "stat", "gauge", "bargauge"):
        for value in (None, math.nan):
            assert shown(panel["fieldConfig"]["defaults"], value) == Shown("unknown", TEXT), panel["title"]


@each_board
def test_unknown_cells_have_the_colour_of_text(board: dict[str, Any]) -> None:
    """What a cell of a table does not know is neither good nor bad, and says so."""
    for panel in _of(board, "table"):
        for title, config in _coloured_columns(panel):
            called = (panel["title"], title)
            assert shown(config, None) == Shown(config["noValue"], TEXT), called
            if "unit" in config:
                assert shown(config, math.nan) == Shown("-", TEXT), called
            else:
                # Text is no number: Grafana would show the text for NaN in its place.
                assert "nan" not in {each["options"].get("match") for each in config["mappings"]}, called
