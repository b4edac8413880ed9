"""The series of what GPUs report by themselves."""

from dataclasses import replace

import pytest

from exporter.metrics.gpu_health import GPU_EVENTS
from exporter.model import EventCount, GpuIdentity, GpuReading, GpuRow

TOTAL, ERRORS, TIMES, EVENTS, WATCHED = GPU_EVENTS
IDENTITY = GpuIdentity(uuid="GPU-a", index=0)
ROW = GpuRow(identity=IDENTITY, reading=GpuReading(identity=IDENTITY), watched=True)


def count(xid: int | None, number: int = 1, mig: str = "", kind: str = "xid") -> EventCount:
    """Return a count with its last event at 100 seconds plus one for each event."""
    return EventCount(uuid="GPU-a", mig_uuid=mig, kind=kind, xid=xid, count=number, last=100.0 + number)


def samples(family, *events: EventCount, row: GpuRow = ROW) -> dict:
    """Return the samples of a family; none is a duplicate."""
    counts = list(family.samples(replace(row, events=events)))
    assert len(counts) == len(dict(counts))
    return dict(counts)


def test_errors_are_counted_by_code_and_instance() -> None:
    counts = samples(ERRORS, count(31, 2), count(31, 3, mig="MIG-1"), count(79))

    assert {labels: value for labels, value in counts.items() if value} == {
        ("", "31", "application"): 2,
        ("MIG-1", "31", "application"): 3,
        ("", "79", "reboot"): 1,
    }


def test_a_watched_gpu_has_a_total_that_starts_at_zero() -> None:
    """A single code has no series before its first error: there are hundreds."""
    assert TOTAL.value(ROW) == 0
    assert samples(ERRORS) == {}


def test_the_total_has_the_errors_of_all_codes_and_of_mig_devices() -> None:
    events = (count(31, 2), count(94, 3, mig="MIG-1"), count(None, 5, kind="mig_config"))
    assert TOTAL.value(replace(ROW, events=events)) == 5


def test_an_unwatched_gpu_has_no_zero_of_errors_but_keeps_counted_ones() -> None:
    row = replace(ROW, watched=False)

    assert TOTAL.value(row) is None
    assert samples(ERRORS, count(48), row=row) == {("", "48", "reset"): 1}
    assert WATCHED.value(row) == 0
    assert WATCHED.value(ROW) == 1


def test_only_errors_that_occurred_have_a_time() -> None:
    assert samples(TIMES) == {}
    assert samples(TIMES, count(48, 5), count(94, mig="MIG-1")) == {
        ("", "48", "reset"): 105.0,
        ("MIG-1", "94", "hardware"): 101.0,
    }


def test_events_without_a_code_are_counted_by_kind_in_a_family_of_their_own() -> None:
    events = (count(48), count(None, 4, kind="double_bit_ecc"), count(None, 1, kind="mig_config"))

    assert samples(EVENTS, *events) == {("double_bit_ecc",): 4, ("mig_config",): 1}
    assert {labels[1] for labels, value in samples(ERRORS, *events).items() if value} == {"48"}


@pytest.mark.parametrize("reading", [None, GpuReading(identity=IDENTITY, up=False)])
def test_a_lost_gpu_keeps_its_events(reading) -> None:
    """The XID of a GPU that fell off the bus is printed after it did."""
    row = replace(ROW, reading=reading, watched=False)

    assert samples(ERRORS, count(79), row=row) == {("", "79", "reboot"): 1}


def test_all_are_of_the_group_of_events() -> None:
    """The reference page has the GPUs and modes of all five."""
    assert {(family.level, family.group) for family in GPU_EVENTS} == {("gpu", "events")}
