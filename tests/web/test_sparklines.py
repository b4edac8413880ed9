"""Sparklines: the last hour of a holder, gaps and all, drawn no more often than they change."""

import re
from dataclasses import replace

import pytest

from exporter.model import DeviceKey
from exporter.web.timelines.sparklines import Sparklines, draw
from tests.history.snapshots import START, Clocked, holder


def line(markup) -> str:
    """Return the path of the use."""
    return re.search(r'class="spark-used" d="([^"]*)"', markup)[1]


def test_gaps_are_gaps_and_one_step_alone_is_seen() -> None:
    """The pen is lifted where nothing is known; every step that is known has a stroke."""
    markup = draw([0.5, 0.5, None, 1.0], None)
    assert line(markup) == "M0 10h25h25M75 1h25"
    assert "spark-share" not in markup


def test_the_entitlement_is_drawn_beside_the_use() -> None:
    """On the same scale, with both numbers in words."""
    markup = draw([0.25, 0.25], 0.5)
    assert '<path class="spark-share" d="M0 1H100"/>' in markup
    assert line(markup) == "M0 10h50h50"
    assert (
        "<title>compute of the last hour: means of 3 min, at most 0.25 GPU, entitled to 0.50</title>"
        in markup
    )


@pytest.mark.parametrize("entitled", [None, 0.5])
def test_nothing_known_is_no_picture(entitled) -> None:
    """No line at the bottom pretends that nothing was computed; the table has a dash there."""
    assert not draw([None] * 20, entitled)


def test_zero_is_drawn() -> None:
    """A holder that was seen to compute nothing has a line at the bottom."""
    assert line(draw([0.0, 0.0], None)) == "M0 19h50h50"


def test_a_little_is_more_than_nothing() -> None:
    """However little was computed, its line is not the one at the bottom."""
    assert line(draw([0.0001, 0.0, 1.0, 1.0], None)) == "M0 18h25V19h25V1h25h25"


def test_holders_are_drawn_from_history() -> None:
    """The hour that is over is shown, on the device of the row and no other."""
    clocked = Clocked(kept=6 * 3600)
    here, there = holder("a", compute_used=0.5), holder("a", device=DeviceKey("GPU-1"))
    for place in range(720):
        clocked.poll(START + place * 5, here, there)
    sparks = Sparklines(clocked.history)
    assert line(sparks.of(here)).count("h") >= 19
    assert not sparks.of(there)
    assert not sparks.of(holder("nobody"))


def test_a_drawing_lasts_until_a_step_is_over_and_then_changes() -> None:
    """Within a step it is the same object; after it, or with another entitlement, it is drawn anew."""
    clocked = Clocked(kept=6 * 3600)
    row = holder("a", compute_used=0.5, compute_entitled=0.5)
    clocked.poll(START, row)
    sparks = Sparklines(clocked.history)
    drawn = {}
    for place in range(1, 120):
        clocked.poll(START + place * 5, row)
        drawn.setdefault(id(sparks.of(row)), sparks.of(row))
    assert 4 <= len(drawn) <= 5
    other = replace(row, compute_entitled=0.25)
    assert "entitled to 0.25" in sparks.of(other)
    clocked.now = START - 1000
    assert not sparks.of(other)
