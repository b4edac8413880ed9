"""The geometry of the bars."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.web.kit.elements import BarPart, bar, with_limits
from exporter.web.kit.markup import bar_svg
from exporter.web.node.pages.picture.cells import Amounts, use_bar

UNKNOWN = Amounts(None, None, None)
EIGHT = Amounts(8, None, None)
SIZES = st.one_of(st.integers(0, 1 << 40), st.floats(0, 1e6))


@given(st.lists(SIZES, max_size=12), st.one_of(st.none(), SIZES), st.booleans())
def test_segments_stay_on_the_track_in_order(sizes, track, known) -> None:
    drawn = bar("", [BarPart("active", size, "") for size in sizes], track, known=known)

    starts = [segment.x for segment in drawn.segments]
    assert starts == sorted(starts)
    assert all(0 <= x < 100 for x in starts)
    assert all(0 < segment.width <= 100 for segment in drawn.segments)


@given(st.integers(1, 1000), st.integers(1, 1000))
def test_the_tick_is_where_the_entitlement_ends(used, entitled) -> None:
    drawn = use_bar("", "active", used, entitled, UNKNOWN)

    (segment,) = drawn.segments
    if used > entitled:
        assert segment.width == pytest.approx(100)
        assert drawn.tick == pytest.approx(100 * entitled / used)
    else:
        assert segment.width == pytest.approx(max(100 * used / entitled, 0.6))
        assert drawn.tick is None


@pytest.mark.parametrize("use", [(None, 4, EIGHT), (None, None, UNKNOWN), (3, None, UNKNOWN)])
def test_unknown_use_is_hatched_and_never_empty(use) -> None:
    (segment,) = use_bar("", "active", *use).segments

    assert (segment.part.look, segment.x, segment.width) == ("unmeasured", 0, 100)


def test_an_observed_zero_is_an_empty_track() -> None:
    assert use_bar("", "active", 0, 4, EIGHT).segments == ()


def test_use_without_entitlement_is_drawn_on_a_dashed_track() -> None:
    drawn = use_bar("", "unheld", 2, None, EIGHT)

    assert drawn.dashed
    assert drawn.segments[0].width == 25


def test_two_limits_are_marks_on_one_bar() -> None:
    drawn = with_limits(use_bar("", "active", 3, 8, EIGHT), {"soft": 2, "hard": 8})

    assert [(mark.look, mark.x) for mark in drawn.thresholds] == [("soft", 25), ("hard", 100)]
    assert (drawn.segments[0].width, drawn.tick) == (37.5, None)
    assert '<rect class="limit-soft" x="25.00%"' in bar_svg(drawn)
    # The last mark is drawn inside of the track.
    assert '<rect class="limit-hard" x="99.00%"' in bar_svg(drawn)


def test_a_limit_beyond_the_entitlement_shrinks_the_track_and_the_tick_marks_its_end() -> None:
    drawn = with_limits(use_bar("", "active", 3, 4, EIGHT), {"hard": 8})

    assert (drawn.segments[0].width, drawn.tick, drawn.thresholds[0].x) == (37.5, 50, 100)


def test_a_bar_without_limits_or_without_a_track_has_no_marks() -> None:
    plain = use_bar("", "active", 3, 4, EIGHT)
    unknown = use_bar("", "active", None, None, UNKNOWN)

    assert with_limits(plain, {}) == plain
    assert with_limits(unknown, {"hard": 8}) == unknown


@given(SIZES, SIZES, st.dictionaries(st.sampled_from(["soft", "hard"]), SIZES))
def test_marks_stay_on_the_track(used, entitled, limits) -> None:
    drawn = with_limits(use_bar("", "active", used, entitled, UNKNOWN), limits)

    assert all(0 <= mark.x <= 100 for mark in drawn.thresholds)
    assert all(0 <= segment.x < 100 and 0 < segment.width <= 100 for segment in drawn.segments)
    assert drawn.tick is None or 0 <= drawn.tick <= 100
