"""Which readings of counters are believed: steps that can be, and counters that begin again."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import C2c, Ecc, GpuIdentity, GpuReading, MigReading, Nvlink
from exporter.model.readings import Profile
from exporter.poll.counter import LASTS_SECONDS, SLACK_SECONDS, GpuCounter, most_millijoules
from exporter.poll.gpu_counters import NodeCounters

PERIOD, MOST = 15.0, 1000
"""Seconds between two readings, and what the counter may rise by in each."""
HIGHEST = round(MOST * (PERIOD + SLACK_SECONDS))
GARBAGE = st.one_of(st.just(0), st.integers(0, 2**64 - 1))
TRUE_RISES = st.lists(st.integers(1, MOST * int(PERIOD)), min_size=2, max_size=30)


def rises(values: list[int], *, energy: bool = True) -> list[int | None]:
    """Return what each reading adds, at PERIOD."""
    counter = GpuCounter(rises=energy)
    return [counter.take(value, place * PERIOD, MOST) for place, value in enumerate(values)]


@given(st.integers(10**6, 2**60), TRUE_RISES, st.data())
def test_single_bad_readings_add_nothing(start: int, steps: list[int], data: st.DataObject):
    """The sum is true at each good reading. A bad one comes in place of a good one, and none follows another.

    Bad is what a counter cannot have risen to; such a value that it can have risen to cannot be noticed.
    """
    values, true = [start, start + steps[0]], start + steps[0]
    bad: set[int] = set()
    for step in steps[1:]:
        true += step
        spoilt = len(values) - 1 not in bad and data.draw(st.booleans())
        possible = range(values[-1], values[-1] + HIGHEST + 1)
        value = data.draw(GARBAGE.filter(lambda value: value not in possible)) if spoilt else true  # noqa: B023
        if spoilt:
            bad.add(len(values))
        values.append(value)
    added = rises(values)
    assert {place for place, rise in enumerate(added) if rise is None} == bad
    for place in set(range(len(values))) - bad:
        assert sum(rise or 0 for rise in added[: place + 1]) == values[place] - start


@given(st.lists(GARBAGE, max_size=30), st.booleans())
def test_no_reading_adds_more_than_the_counter_may_rise_by(values: list[int], energy: bool):
    at, counter = 0.0, GpuCounter(rises=energy)
    total = 0
    for value in values:
        rise = counter.take(value, at, MOST)
        assert rise is None or rise >= 0
        total += rise or 0
        assert total <= MOST * (at + SLACK_SECONDS * len(values))
        at += PERIOD


def test_a_counter_that_begins_again_counts_from_its_first_reading_on():
    """Energy that does not rise is no counter that began again: it is not read correctly."""
    assert rises([10**9, 10**9 + 5, 40, 90, 100]) == [0, 5, None, 50, 10]
    assert rises([10**9, 10**9 + 5, 0, 0, 0]) == [0, 5, None, None, None]
    assert rises([10**9, 10**9 + 5, 0, 0, 30, 40], energy=False) == [0, 5, None, 0, 30, 10]


def test_a_counter_that_is_lower_after_an_outage_began_again():
    """It counts nothing; one that is higher than it can be by then did not."""
    counter = GpuCounter(rises=True)
    values = {0.0: 10**4, 30.0: 9_999, 60.0: 10**9, 90.0: 10**9 + 5, 120.0: 10**9}
    assert [counter.take(value, at, MOST, outage=True) for at, value in values.items()] == [
        0,
        0,
        None,
        5,
        None,
    ]


def test_what_a_counter_rises_by_after_it_began_again_at_zero_in_an_outage_counts():
    counter = GpuCounter(rises=True)
    values = {0.0: 10**4, 30.0: 0, 35.0: 40, 40.0: 60}
    assert [counter.take(value, at, MOST, outage=at < 40) for at, value in values.items()] == [
        0,
        None,
        40,
        20,
    ]


def test_a_counter_that_is_a_little_lower_is_believed_when_it_is_back():
    """No restart, however long it is lower."""
    below = [10**9 - 100 + step for step in range(0, 100, 10)]
    assert rises([10**9 - 5, 10**9, *below, 10**9 + 3]) == [0, 5, *[None] * len(below), 3]


def test_a_counter_that_goes_on_from_an_impossible_value_is_believed_in_the_end():
    """Of the leap nothing is counted."""
    leapt = [10**12 + 10 * place for place in range(int(LASTS_SECONDS / PERIOD) + 2)]
    assert rises([10**9, 10**9 + 5, *leapt]) == [0, 5, *[None] * (len(leapt) - 2), 10, 10]


@pytest.mark.parametrize("first", [0, 10**15])
def test_a_first_reading_that_was_bad_is_replaced_by_two_good_ones(first: int):
    assert rises([first, 10**9, 10**9 + 5, 10**9 + 9]) == [0, None, 5, 4]


@pytest.mark.parametrize(
    ("limits", "watts"),
    [
        ({}, 10_000),
        ({"max": 700_000, "min": 100_000}, 700),
        ({"min": 100_000}, 10_000),
        ({"max": 10**9}, 10_000),
    ],
)
def test_a_gpu_cannot_draw_more_than_twice_its_limit(limits: dict[Any, int], watts: int):
    reading = GpuReading(identity=GpuIdentity(uuid="GPU-a", index=0), power_limits_milliwatts=limits)
    assert most_millijoules(reading) == 2 * 1000 * watts


def gpu(seconds: float, count: int, **values: Any) -> GpuReading:
    """Return a reading in which all counters are at ``count``."""
    scopes = ("volatile", "aggregate")
    return GpuReading(
        identity=GpuIdentity(uuid="GPU-a", index=0),
        read_monotonic=seconds,
        read_at=1e9 + seconds,
        energy_millijoules=count,
        violations_nanoseconds={"power": count},
        pcie_replays=count,
        traffic_bytes={"pcie_receive": count, "nvlink_transmit": count},
        nvlink=Nvlink(
            links=4, errors={"replay": count}, packet_errors={"symbol": count}, recoveries={"failed": count}
        ),
        c2c=C2c(links=1, errors={"crc": count}),
        ecc=Ecc(
            errors={("corrected", scope): count for scope in scopes},
            by_location={("corrected", scope, "dram"): count for scope in scopes},
        ),
        profiling=profile(count),
        mig=(MigReading(uuid="MIG-a", gi=1, ci=0, profiling=profile(count)),),
        **values,
    )


def profile(count: int) -> Profile:
    """Return a profile in which all counters are at ``count``."""
    return Profile(source="dcgm", cycles={"sm_active": count}, bytes_total={"pcie_receive": count})


BARE_PROFILE = Profile(source="dcgm")
WITHOUT_COUNTERS: dict[str, Any] = {
    "energy_millijoules": None,
    "violations_nanoseconds": {},
    "pcie_replays": None,
    "traffic_bytes": {},
    "nvlink": Nvlink(links=4),
    "c2c": C2c(links=1),
    "ecc": Ecc(),
    "profiling": BARE_PROFILE,
    "mig": (MigReading(uuid="MIG-a", gi=1, ci=0, profiling=BARE_PROFILE),),
}


@pytest.mark.parametrize("bad", [7, 2**63])
def test_no_counter_shows_a_bad_reading(bad: int):
    """It is absent, and what follows is as before. Other values of the reading are shown."""
    counters = NodeCounters()
    good = [gpu(PERIOD * place, 10**9 + place) for place in range(4)]
    for reading in good[:2]:
        assert counters.advance([reading]) == {"GPU-a": reading}
    # Not several counters at 0 together, which would be a restart.
    spoilt = replace(gpu(PERIOD * 2, bad), temperature_celsius=40, energy_millijoules=0)
    assert counters.advance([spoilt]) == {"GPU-a": replace(spoilt, **WITHOUT_COUNTERS)}
    assert counters.of_gpu("GPU-a").restarted is None
    assert counters.advance([good[3]]) == {"GPU-a": good[3]}


def test_values_that_are_kept_are_no_further_readings():
    """Slow values and energy are shown again until they are read again."""
    counters, start = NodeCounters(), 10**9
    counters.advance([gpu(0, start, slow_read_at=1.0)])
    counters.advance([gpu(PERIOD, start, slow_read_at=2.0)])
    for place in range(2, 6):
        kept = gpu(PERIOD * place, 3, slow_read_at=3.0, energy_kept=place > 2)
        kept = replace(kept, violations_nanoseconds={}, energy_millijoules=start * 2)
        shown = counters.advance([kept])["GPU-a"]
        assert (shown.pcie_replays, shown.energy_millijoules) == (None, None)
    read = replace(kept, read_monotonic=PERIOD * 6, slow_read_at=4.0)
    assert counters.advance([read])["GPU-a"].pcie_replays == 3


def test_after_a_restart_all_counters_are_shown_at_once():
    counters = NodeCounters()
    counters.advance([gpu(0, 10**9)])
    counters.advance([gpu(PERIOD, 10**9)])
    begun = gpu(PERIOD * 2, 20)
    assert counters.advance([begun]) == {"GPU-a": begun}
    assert counters.of_gpu("GPU-a").restarted == begun.read_at
    assert counters.of_gpu("GPU-a").shows_restarts
