"""Tiers: whatever is to be kept at whatever pace, it is covered, in few slots."""

import math

from hypothesis import given
from hypothesis import strategies as st

from exporter.history.plan import plan
from exporter.history.tiers import tiers_of

KEPT = st.floats(min_value=300, max_value=168 * 3600)
STEP = st.floats(min_value=0.1, max_value=3600)


@given(KEPT, STEP)
def test_tiers_cover_the_retention_in_few_slots(kept, step) -> None:
    tiers = tiers_of(kept, step)
    assert tiers[-1].reach >= kept
    assert tiers[0].step >= step
    assert all(2 <= tier.slots <= 720 for tier in tiers)
    assert len(tiers) <= 6


@given(KEPT, STEP, st.floats(min_value=10, max_value=1e6), st.integers(1, 1440), st.floats(1e9, 4e9))
def test_a_plan_covers_the_span_in_the_allowed_steps(kept, step, span, points, end) -> None:
    tiers = tiers_of(kept, step)
    planned = plan(tiers, now=end, end=end, span=span, points=points)
    assert 1 <= planned.steps <= points
    assert planned.steps * planned.step >= span * 0.999
    assert planned.start <= end < planned.end
    assert planned.end - end <= planned.step * 1.001
    ending_before = plan(tiers, now=end + 1, end=end, span=span, points=points)
    assert ending_before.start < end <= ending_before.end
    assert math.isclose(planned.step, tiers[planned.tier].step * planned.each)
