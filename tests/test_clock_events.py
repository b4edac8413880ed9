"""How often the clocks of a GPU began to be held back."""

from exporter.model import GpuIdentity, GpuReading
from exporter.poll.several_readings import ClockEvents

POWER_CAP, THERMAL = 0x4, 0x20


def gpu(mask, uuid="GPU-a", up=True) -> GpuReading:
    """Make a GPU whose clocks are held for the reasons of a mask."""
    return GpuReading(identity=GpuIdentity(uuid=uuid, index=0), up=up, clock_events=mask)


def counts(seen: ClockEvents, mask) -> dict[str, int]:
    """Take one sweep and give what has been counted at all."""
    return {reason: count for reason, count in seen.advance([gpu(mask)])["GPU-a"].items() if count}


def test_each_beginning_counts_once():
    """A reason counts when it appears, not while it lasts, and again when it comes back."""
    seen = ClockEvents()
    found = [counts(seen, mask) for mask in (0, POWER_CAP, POWER_CAP, POWER_CAP | THERMAL, 0, THERMAL)]
    assert found == [
        {},
        {"power_cap": 1},
        {"power_cap": 1},
        {"power_cap": 1, "software_thermal": 1},
        {"power_cap": 1, "software_thermal": 1},
        {"power_cap": 1, "software_thermal": 2},
    ]


def test_what_is_so_at_the_first_look_has_begun_before():
    """Nobody knows how often a reason came before anybody looked."""
    assert counts(ClockEvents(), POWER_CAP) == {}


def test_a_reason_that_was_watched_and_did_not_come_is_an_observed_zero():
    """Once a mask was read every reason has a count."""
    assert set(ClockEvents().advance([gpu(0)])["GPU-a"].values()) == {0}


def test_a_gpu_that_does_not_tell_has_no_count():
    """Without a mask nothing is known of any reason."""
    assert ClockEvents().advance([gpu(None)]) == {}


def test_counts_never_fall_while_a_gpu_does_not_answer():
    """A sweep without the mask changes nothing, and what it missed is not made up."""
    seen = ClockEvents()
    counts(seen, 0)
    counts(seen, POWER_CAP)
    assert seen.advance([gpu(None, up=False)])["GPU-a"]["power_cap"] == 1
    assert counts(seen, POWER_CAP) == {"power_cap": 1}


def test_a_gpu_that_is_gone_is_forgotten():
    """What is no longer on the node has no counts."""
    seen = ClockEvents()
    seen.advance([gpu(0), gpu(0, "GPU-b")])
    assert set(seen.advance([gpu(0, "GPU-b")])) == {"GPU-b"}
