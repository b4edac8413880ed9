"""The series of what GPUs report by themselves."""

from dataclasses import replace

import pytest

from exporter.metrics.gpu_health import GPU_EVENTS
from exporter.model import EventCount, GpuIdentity, GpuReading, GpuRow
from exporter.model.xids import ALERTING

ERRORS, TIMES, EVENTS, WATCHED = GPU_EVENTS
IDENTITY = GpuIdentity(uuid="GPU-a", index=0)
ROW = GpuRow(identity=IDENTITY, reading=GpuReading(identity=IDENTITY), watched=True)


def count(xid: int | None, number: int = 1, mig: str = "", kind: str = "xid") -> EventCount:
    """Return a count with its last event at 100 seconds plus one for each event."""
    return EventCount(uuid="GPU-a", mig_uuid=mig, kind=kind, xid=xid, count=number, last=100.0 + number)


def samples(family, *events: EventCount, row: GpuRow = ROW) -> dict:
    """Return the samples of a family; none is a duplicate."""
    found = list(family.samples(replace(row, events=events)))
    assert len(found) == len(dict(found))
    return dict(found)


def test_errors_are_counted_by_code_and_instance() -> None:
    """Each code is a series of its own, for the whole GPU and for each of its MIG devices."""
    found = samples(ERRORS, count(31, 2), count(31, 3, mig="MIG-1"), count(79))

    assert {labels: value for labels, value in found.items() if value} == {
        ("", "31"): 2,
        ("MIG-1", "31"): 3,
        ("", "79"): 1,
    }


def test_a_watched_gpu_starts_with_zeros_of_the_codes_that_alert() -> None:
    """Before the first error there is a 0 to rise from, for those codes alone."""
    assert samples(ERRORS) == {("", str(code)): 0 for code in ALERTING}
    assert ("", "31") not in samples(ERRORS)


def test_a_zero_ends_with_the_first_error() -> None:
    """The count takes the place of the 0; an error of a MIG device leaves that of the whole GPU at 0."""
    found = samples(ERRORS, count(48), count(94, mig="MIG-1"))

    assert (found["", "48"], found["", "94"], found["MIG-1", "94"]) == (1, 0, 1)


def test_of_a_gpu_that_is_not_watched_nothing_is_claimed() -> None:
    """What occurred stays counted; that nothing else did is not known."""
    row = replace(ROW, watched=False)

    assert samples(ERRORS, count(48), row=row) == {("", "48"): 1}
    assert WATCHED.value(row) == 0
    assert WATCHED.value(ROW) == 1


def test_the_time_of_the_last_error_has_no_zero() -> None:
    """Only what occurred has a time."""
    assert samples(TIMES) == {}
    assert samples(TIMES, count(48, 5), count(94, mig="MIG-1")) == {("", "48"): 105.0, ("MIG-1", "94"): 101.0}


def test_other_events_are_counted_by_their_word() -> None:
    """Events without a code are in the other family, and XIDs are not."""
    events = (count(48), count(None, 4, kind="double_bit_ecc"), count(None, 1, kind="mig_config"))

    assert samples(EVENTS, *events) == {("double_bit_ecc",): 4, ("mig_config",): 1}
    assert {labels[1] for labels, value in samples(ERRORS, *events).items() if value} == {"48"}


@pytest.mark.parametrize("reading", [None, GpuReading(identity=IDENTITY, up=False)])
def test_a_lost_gpu_keeps_its_events(reading) -> None:
    """The event that a GPU fell off the bus is still printed after it did."""
    row = replace(ROW, reading=reading, watched=False)

    assert samples(ERRORS, count(79), row=row) == {("", "79"): 1}


def test_all_are_of_the_group_of_events() -> None:
    """The reference page has the GPUs and modes of all four."""
    assert {(family.level, family.group) for family in GPU_EVENTS} == {("gpu", "events")}
