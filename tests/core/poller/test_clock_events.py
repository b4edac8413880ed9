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


def test_each_start_of_a_reason_is_counted_once():
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


def test_a_reason_active_in_the_first_sweep_is_not_counted():
    assert counts(ClockEvents(), POWER_CAP) == {}


def test_a_reason_that_did_not_start_is_an_observed_zero():
    assert set(ClockEvents().advance([gpu(0)])["GPU-a"].values()) == {0}


def test_without_a_mask_counts_are_unknown():
    assert ClockEvents().advance([gpu(None)]) == {}


def test_counts_are_kept_while_a_gpu_does_not_answer():
    seen = ClockEvents()
    counts(seen, 0)
    counts(seen, POWER_CAP)
    assert seen.advance([gpu(None, up=False)])["GPU-a"]["power_cap"] == 1
    assert counts(seen, POWER_CAP) == {"power_cap": 1}


def test_a_removed_gpu_is_forgotten():
    seen = ClockEvents()
    seen.advance([gpu(0), gpu(0, "GPU-b")])
    assert set(seen.advance([gpu(0, "GPU-b")])) == {"GPU-b"}
