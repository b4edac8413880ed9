"""The state of a holder: one word for its numbers."""

import pytest

from exporter.model import DeviceKey, Totals
from exporter.model.states import STATE_WORDS, Judgement, judge_holder

NOW = 10_000.0
DEVICE = DeviceKey("GPU-0")


def _quiet(seconds: float) -> Totals:
    return Totals(first_seen=0.0, last_active=NOW - seconds, seen_computing=True)


def _never(seconds: float) -> Totals:
    return Totals(first_seen=NOW - seconds, last_active=NOW - seconds)


OVER = {"memory_used": 11, "memory_entitled": 10}
NOT_COMPUTING = {"compute_used": 0.0}
IDLE = NOT_COMPUTING | {"totals": _quiet(600)}


@pytest.mark.parametrize(
    ("state", "facts"),
    [
        ("active", {"compute_used": 0.05}),
        ("active", {"compute_used": 0.05, "totals": None}),
        ("active", {"compute_used": 0.05, "totals": _quiet(9000)}),
        ("active", NOT_COMPUTING | {"totals": _quiet(0)}),
        ("active", NOT_COMPUTING | {"totals": _quiet(59.9)}),
        ("quiet", NOT_COMPUTING | {"totals": _quiet(60)}),
        ("quiet", NOT_COMPUTING | {"totals": _quiet(599.9)}),
        ("quiet", NOT_COMPUTING | {"totals": _never(0)}),
        ("quiet", NOT_COMPUTING | {"totals": _never(599.9)}),
        ("idle-memory", NOT_COMPUTING | {"totals": _never(600)}),
        ("idle-memory", NOT_COMPUTING | {"totals": _quiet(600)}),
        ("idle", NOT_COMPUTING | {"totals": _quiet(600), "memory_used": 0}),
        ("idle", NOT_COMPUTING | {"totals": _quiet(600), "memory_used": None}),
        ("over-share", OVER),
        ("over-share", OVER | {"compute_used": None}),
        ("over-share", OVER | NOT_COMPUTING | {"totals": _quiet(9000)}),
        ("over-share", {"compute_used": 0.5, "compute_entitled": 0.1, "memory_limit": None}),
        # Nothing limits its compute.
        ("active", {"compute_used": 0.5, "compute_entitled": 0.1, "memory_limit": 99}),
        ("over-share", OVER | {"memory_limit": 99}),
        ("over-share", OVER | {"isolation": ""}),
        ("over-notional", OVER | {"isolation": "none"}),
        ("over-notional", OVER | {"compute_used": None, "isolation": "none"}),
        ("idle-memory", OVER | NOT_COMPUTING | {"totals": _quiet(9000), "isolation": "none"}),
        ("over-notional", OVER | NOT_COMPUTING | {"totals": _quiet(599), "isolation": "none"}),
        ("active", {"compute_used": 0.5, "compute_entitled": 0.1, "isolation": "none"}),
        ("active", {"compute_used": 0.5, "compute_entitled": 0.1, "sharing": "mps"}),
        ("over-share", OVER | {"sharing": "mps"}),
        ("active", {"compute_used": 0.34, "compute_entitled": 1 / 3}),
        ("active", {"compute_used": 0.5, "compute_entitled": None, "memory_entitled": None}),
        ("unheld", {"slices": 0}),
        ("unheld", {"slices": 0, "compute_used": None, "memory_used": 99, "memory_entitled": 1}),
        ("unknown", {"compute_used": None}),
        ("unknown", NOT_COMPUTING | {"totals": None}),
        ("unknown", NOT_COMPUTING | {"totals": Totals(first_seen=0.0)}),
        ("active", {"slices": None, "compute_used": 0.05}),
    ],
)
def test_the_state_follows_from_the_numbers(container, state, facts) -> None:
    """Use without a slice goes first, then use beyond the share, then activity, as far as it is measured."""
    row = container("x", DEVICE, **({"isolation": "hard"} | facts))
    assert judge_holder(row, NOW, idle_after=600).state == state


@pytest.mark.parametrize(
    ("states", "facts"),
    [
        (("over-share", "idle-memory"), OVER | IDLE),
        (("unheld", "idle-memory"), IDLE | {"slices": 0, "memory_used": 1}),
        (("active", "unhealthy"), {"compute_used": 0.05, "health": "Unhealthy"}),
        (("active",), {"compute_used": 0.05, "health": "Unknown"}),
        (("over-share",), OVER | NOT_COMPUTING | {"totals": _quiet(599)}),
        (("idle-memory", "over-notional"), OVER | IDLE | {"isolation": "none"}),
        (("unheld", "idle"), IDLE | {"slices": 0, "memory_used": 0}),
        (("over-notional",), OVER | {"isolation": "none"}),
        (("idle",), IDLE | {"memory_used": 0}),
    ],
)
def test_a_state_does_not_hide_another_one(container, states, facts) -> None:
    row = container("x", DEVICE, **({"isolation": "hard"} | facts))
    assert judge_holder(row, NOW, idle_after=600).states == states


def test_every_state_has_words() -> None:
    words = "active quiet idle idle-memory over-share over-notional unheld unknown unhealthy contested"
    assert set(STATE_WORDS) == set(words.split())


@pytest.mark.parametrize(
    ("totals", "judged"),
    [
        (_quiet(19.9), Judgement("active", "active", pytest.approx(19.9))),
        (_quiet(20), Judgement("idle", "idle", 20)),
        (_never(19.9), Judgement("quiet", "quiet", pytest.approx(19.9))),
        (_never(20), Judgement("idle", "idle", 20)),
    ],
)
def test_with_idle_after_less_than_a_minute_only_holders_never_seen_computing_are_quiet(
    container, totals, judged
) -> None:
    row = container("x", DEVICE, compute_used=0.0, memory_used=0, totals=totals)
    assert judge_holder(row, NOW, idle_after=20) == judged


@pytest.mark.parametrize(
    ("facts", "seconds"),
    [
        ({"compute_used": 0.05}, None),
        ({"compute_used": 0.0, "totals": _quiet(59)}, None),
        ({"compute_used": 0.0, "totals": _quiet(-60)}, None),
        ({"compute_used": 0.0, "totals": _quiet(60)}, 60),
        ({"compute_used": 0.0, "totals": _quiet(600)}, 600),
        ({"compute_used": 0.0, "totals": _never(-60)}, 0),
        ({"compute_used": 0.0, "totals": _never(5)}, 5),
        ({"compute_used": None, "totals": _quiet(60)}, None),
    ],
)
def test_quiet_and_idle_holders_have_the_time_since_their_last_compute_use(container, facts, seconds) -> None:
    assert judge_holder(container("x", DEVICE, **facts), NOW, idle_after=600).quiet_for == seconds
