"""Load curves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.demo.scenario.pods import HEIGHTS, OFF, Curve, level, peak


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("constant", [90, 90, 90, 90, 90]),
        ("off", [0, 0, 0, 0, 0]),
        ("sine", [10, 50, 90, 50, 10]),
        ("square", [90, 90, 10, 10, 90]),
        ("burst", [90, 10, 10, 10, 90]),
        ("ramp", [10, 30, 50, 70, 10]),
    ],
)
def test_each_shape_has_its_heights(shape, expected):
    """At every quarter of its period."""
    curve = Curve(shape=shape, low=10, high=90, period=40)
    assert [round(level(curve, t)) for t in (0, 10, 20, 30, 40)] == expected


def test_a_phase_moves_the_curve_ahead():
    curve = Curve(shape="ramp", high=100, period=100)
    assert level(Curve(shape="ramp", high=100, period=100, phase=30), 20) == level(curve, 50)


def test_noise_depends_on_seed_key_and_second_alone():
    curve = Curve(high=50, noise=5)
    assert level(curve, 3, "a", 1) == level(curve, 3, "a", 1)
    assert level(curve, 3, "a", 1) == level(curve, 3.9, "a", 1)
    assert (
        len(
            {
                level(curve, 3, "a", 1),
                level(curve, 3, "b", 1),
                level(curve, 3, "a", 2),
                level(curve, 4, "a", 1),
            }
        )
        == 4
    )


def test_a_curve_at_0_has_no_noise():
    assert level(Curve(shape="square", low=0, high=50, period=10, noise=5), 7) == 0
    assert level(OFF, 7) == 0


CURVES = st.builds(
    Curve,
    shape=st.sampled_from(list(HEIGHTS)),
    low=st.floats(0, 50),
    high=st.floats(50, 100),
    noise=st.floats(0, 10),
)


@given(curve=CURVES, t=st.floats(0, 1e6), seed=st.integers(0, 5))
def test_a_level_is_between_0_and_the_peak(curve, t, seed):
    assert 0 <= level(curve, t, "k", seed) <= peak(curve) + 1e-9
