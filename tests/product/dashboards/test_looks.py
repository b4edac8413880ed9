"""Texts and colours of values: an outage, an unknown value, one series among others."""

import math
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.product.dashboards.boards import each_board
from tests.product.dashboards.grafana import panels
from tests.product.dashboards.looks import PALETTE, Shown, band, column, link, links, shown

# The colour of plain text, which is neither good nor bad.
TEXT = "text"
WORDS = {"type": "value", "options": {"1": {"text": "yes", "color": "red"}}}
UNKNOWN = {"type": "special", "options": {"match": "nan", "result": {"text": "-", "color": TEXT}}}
STEPS = {"steps": [{"value": None, "color": "orange"}, {"value": 10, "color": TEXT}]}


def _of(board: dict[str, Any], *kinds: str) -> Iterator[dict[str, Any]]:
    return (panel for panel in panels(board) if panel["type"] in kinds)


def _coloured_columns(panel: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for override in panel["fieldConfig"]["overrides"]:
        if any(each["id"] == "custom.cellOptions" for each in override["properties"]):
            title = override["matcher"]["options"]
            yield title, dict(column(panel, title))


@each_board
def test_the_link_of_a_row_without_a_uuid_chooses_all_gpus_or_none(board: dict[str, Any]) -> None:
    for panel in _of(board, "table"):
        for url in links(panel):
            chosen = re.findall(r"var-uuid=([^&]*)", link(panel, url, {"node": "n1"}))
            assert chosen in ([], ["$__all"]), panel["title"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, ("yes", "red")),
        (3, ("3", "orange")),
        (12, ("12", TEXT)),
        (math.nan, ("-", TEXT)),
        (None, ("-", TEXT)),
    ],
)
def test_the_simulation_applies_mappings_before_thresholds(value: float | None, expected: Any) -> None:
    assert shown({"mappings": [WORDS, UNKNOWN], "thresholds": STEPS, "noValue": "unknown"}, value) == expected


def test_the_simulation_merges_values_of_a_state_timeline_coloured_by_thresholds() -> None:
    """Grafana then ignores the mappings."""
    defaults = {"mappings": [WORDS], "thresholds": {"steps": STEPS["steps"][:1]}}
    panel = {"options": {"mergeValues": True}, "fieldConfig": {"defaults": defaults}}

    for colour, expected in (
        ({"mode": "thresholds"}, ("-∞+", "orange")),
        ({"mode": "fixed", "fixedColor": TEXT}, ("yes", "red")),
    ):
        defaults["color"] = colour
        assert band(panel, 1) == expected


@each_board
def test_state_timelines_show_text_and_colour_of_each_value(board: dict[str, Any]) -> None:
    """An outage does not look like health."""
    for panel in _of(board, "state-timeline"):
        mappings = panel["fieldConfig"]["defaults"]["mappings"]
        values = next(mapping["options"] for mapping in mappings if mapping["type"] == "value")
        for value, result in values.items():
            assert band(panel, float(value)) == Shown(result["text"], result["color"]), panel["title"]


@each_board
def test_lines_and_bars_of_a_panel_have_different_colours(board: dict[str, Any]) -> None:
    for panel in _of(board, "timeseries", "bargauge"):
        config = panel["fieldConfig"]["defaults"]
        assert len({shown(config, 1, place).colour for place in range(PALETTE)}) == PALETTE, panel["title"]


@each_board
def test_unknown_numbers_have_the_colour_of_text(board: dict[str, Any]) -> None:
    for panel in _of(board, "stat", "gauge", "bargauge"):
        for value in (None, math.nan):
            assert shown(panel["fieldConfig"]["defaults"], value) == Shown("unknown", TEXT), panel["title"]


@each_board
def test_unknown_cells_have_the_colour_of_text(board: dict[str, Any]) -> None:
    for panel in _of(board, "table"):
        for title, config in _coloured_columns(panel):
            cell = (panel["title"], title)
            assert shown(config, None) == Shown(config["noValue"], TEXT), cell
            if "unit" in config:
                assert shown(config, math.nan) == Shown("-", TEXT), cell
            else:
                # Grafana would show the text for NaN instead of a text, which is not a number.
                assert "nan" not in {each["options"].get("match") for each in config["mappings"]}, cell
