"""The state of a holder: one word for what its numbers say."""

import pytest

from exporter.model import DeviceKey, Totals
from exporter.states import STATE_WORDS, holder_state, idle_seconds

NOW = 10_000.0
DEVICE = DeviceKey("GPU-0")


def _quiet(seconds: float) -> Totals:
    return Totals(first_seen=0.0, last_active=NOW - seconds)


@pytest.mark.parametrize(
    ("state", "facts"),
    [
        ("active", {"compute_used": 0.05}),
        ("active", {"compute_used": 0.05, "totals": None}),
        ("active", {"compute_used": 0.0, "totals": _quiet(599)}),
        ("idle-memory", {"compute_used": 0.0, "totals": _quiet(600)}),
        ("idle", {"compute_used": 0.0, "totals": _quiet(600), "memory_used": 0}),
        ("idle", {"compute_used": 0.0, "totals": _quiet(600), "memory_used": None}),
        ("over-share", {"memory_used": 11, "memory_entitled": 10}),
        ("over-share", {"memory_used": 11, "memory_entitled": 10, "compute_used": None}),
        (
            "over-share",
            {"memory_used": 11, "memory_entitled": 10, "compute_used": 0.0, "totals": _quiet(9000)},
        ),
        ("over-share", {"compute_used": 0.5, "compute_entitled": 0.1}),
        ("over-share", {"memory_used": 11, "memory_entitled": 10, "isolation": ""}),
        ("over-notional", {"memory_used": 11, "memory_entitled": 10, "isolation": "none"}),
        (
            "over-notional",
            {"memory_used": 11, "memory_entitled": 10, "compute_used": None, "isolation": "none"},
        ),
        (
            "idle-memory",
            {
                "memory_used": 11,
                "memory_entitled": 10,
                "compute_used": 0.0,
                "totals": _quiet(9000),
                "isolation": "none",
            },
        ),
        ("active", {"compute_used": 0.5, "compute_entitled": 0.1, "isolation": "none"}),
        ("active", {"compute_used": 0.34, "compute_entitled": 1 / 3}),
        ("active", {"compute_used": 0.5, "compute_entitled": None, "memory_entitled": None}),
        ("unheld", {"slices": 0}),
        ("unheld", {"slices": 0, "compute_used": None, "memory_used": 99, "memory_entitled": 1}),
        ("unknown", {"compute_used": None}),
        ("unknown", {"compute_used": 0.0, "totals": None}),
        ("unknown", {"compute_used": 0.0, "totals": Totals(first_seen=0.0)}),
        ("active", {"slices": None, "compute_used": 0.05}),
    ],
)
def test_the_state_is_what_the_numbers_say(container, state, facts) -> None:
    """Use without a slice goes first, then use beyond the share, then activity, as far as it is measured."""
    row = container("x", DEVICE, **({"isolation": "hard"} | facts))
    assert holder_state(row, NOW, idle_after=600) == state


def test_every_state_has_its_words() -> None:
    """A person reads words, not codes."""
    assert set(STATE_WORDS) == {
        "active",
        "idle",
        "idle-memory",
        "over-share",
        "over-notional",
        "unheld",
        "unknown",
    }


def test_idle_time_is_unknown_without_a_measurement(container) -> None:
    """How long a holder has been quiet is known only while its compute is measured."""
    assert idle_seconds(container("x", DEVICE, compute_used=0.0, totals=_quiet(60)), NOW) == 60
    assert idle_seconds(container("x", DEVICE, compute_used=0.0, totals=_quiet(-60)), NOW) == 0
    assert idle_seconds(container("x", DEVICE, compute_used=None, totals=_quiet(60)), NOW) is None
