"""Sparklines: the last hour of a holder, gaps and all, drawn no more often than they change."""

import re
from dataclasses import replace

import pytest

from exporter.model import DeviceKey
from exporter.web.node.timelines.sparklines import Sparklines, draw
from tests.core.history.snapshots import START, Clocked, holder


def line(markup) -> str:
    """Return the path of the use."""
    return re.search(r'class="spark-used" d="([^"]*)"', markup)[1]


def test_gaps_are_gaps_and_one_step_alone_is_seen() -> None:
    markup = draw([0.5, 0.5, None, 1.0], None)
    assert line(markup) == "M0 10h25h25M75 1h25"
    assert "spark-share" not in markup


def test_entitlement_and_use_have_one_scale() -> None:
    markup = draw([0.25, 0.25], 0.5)
    assert '<path class="spark-share" d="M0 1H100"/>' in markup
    assert line(markup) == "M0 10h50h50"
    assert (
        "<title>compute of the last hour: means of 3 min, at most 0.25 GPU, entitled to 0.50</title>"
        in markup
    )


@pytest.mark.parametrize("entitled", [None, 0.5])
def test_an_unknown_hour_has_no_picture(entitled) -> None:
    assert not draw([None] * 20, entitled)


def test_zero_is_a_line_at_the_bottom() -> None:
    assert line(draw([0.0, 0.0], None)) == "M0 19h50h50"


def test_a_little_use_is_above_the_bottom() -> None:
    assert line(draw([0.0001, 0.0, 1.0, 1.0], None)) == "M0 18h25V19h25V1h25h25"


def test_holders_are_drawn_from_history() -> None:
    clocked = Clocked(kept=6 * 3600)
    here, there = holder("a", compute_used=0.5), holder("a", device=DeviceKey("GPU-1"))
    for place in range(720):
        clocked.poll(START + place * 5, here, there)
    sparks = Sparklines(clocked.history)
    assert line(sparks.of(here)).count("h") >= 19
    assert not sparks.of(there)
    assert not sparks.of(holder("nobody"))


def test_a_drawing_is_reused_within_a_step() -> None:
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
