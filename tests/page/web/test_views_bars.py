"""The geometry of the bars."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.web.kit.elements import BarPart, bar
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
