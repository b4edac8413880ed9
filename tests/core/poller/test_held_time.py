"""The time of a holding, and the part of it in which memory and compute use were known."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import ContainerRow, GpuIdentity, GpuReading, Totals
from exporter.poll.accounting import Coverage
from tests.core.poller.test_accounting import UUID, Node, row

SHARES = st.one_of(st.none(), st.floats(0, 1))


def holder(*, held=0.5, used=0.25, memory=1, **changes) -> ContainerRow:
    """Return a holder of a GPU: its entitlement, its use and its memory, None where it is not known."""
    return replace(row(held=held, used=used, **changes), memory_used=memory)


def times(totals: Totals) -> tuple[float | None, ...]:
    """Return the seconds held and with known memory, the GPU-seconds held and with known compute."""
    return (
        totals.held_seconds,
        totals.memory_measured_seconds,
        totals.entitled_gpu_seconds,
        totals.measured_gpu_seconds,
    )


def test_all_time_is_measured_while_all_is_known():
    node = Node().after(0, holder())
    assert times(node.totals()) == (0, 0, 0, 0)
    node.after(5, holder()).after(7, holder(held=1.0))
    assert times(node.totals()) == (12, 12, 9.5, 9.5)


def test_unknown_use_is_held_and_not_measured():
    """Memory and compute each by itself; the part of a container that is never measured is 0, not absent."""
    node = Node().after(0, holder()).after(4, holder(memory=None)).after(6, holder(used=None))
    assert times(node.totals()) == (10, 6, 5, 2)
    dark = Node().after(0, holder(memory=None, used=None)).after(8, holder(memory=None, used=None))
    assert times(dark.totals()) == (8, 0, 4, 0)


def test_an_unknown_entitlement_has_no_gpu_seconds():
    """The container holds the device all the same, and its memory is measured."""
    node = Node().after(0, holder(held=None)).after(10, holder(held=None))
    assert times(node.totals()) == (10, 10, None, None)


@pytest.mark.parametrize("slices", [0, None])
def test_use_without_an_allocation_is_no_time_held(slices):
    """Nor is the use of a pod whose containers cannot be distinguished."""
    user = holder(held=None, slices=slices)
    if slices is None:
        user = replace(user, holder=user.holder._replace(container=""))
    node = Node().after(0, user).after(10, user)
    assert times(node.totals()) == (None, None, None, None)


def test_a_failed_poll_is_not_measured_and_a_late_one_is():
    failed = Node().after(0, holder()).after(5, holder(), fresh=()).after(5, holder())
    assert times(failed.totals()) == (10, 5, 5, 2.5)
    late = Node().after(0, holder()).after(5, holder(), fresh=()).after(5, holder(), covers=10.0)
    assert times(late.totals()) == (10, 10, 5, 5)
    gap = Node().after(0, holder()).after(61, holder()).after(5, holder())
    assert times(gap.totals()) == (66, 5, 33, 2.5)


def test_a_late_reading_measures_what_was_held_and_not_what_is_held_now():
    node = Node().after(0, holder(held=0.1))
    node.after(50, holder(held=0.1), fresh=()).after(5, holder(held=1.0), covers=55.0)
    assert times(node.totals()) == pytest.approx((55, 55, 10, 10))


def test_a_late_reading_does_not_measure_a_poll_without_the_container():
    """Who was not listed in between may not have held the device; what waited before is not counted later."""
    node = Node().after(0, holder()).after(5, holder(), fresh=()).after(5, fresh=(), complete=False)
    node.after(5, holder(), covers=15.0)
    assert times(node.totals()) == (10, 5, 5, 2.5)
    node.after(5, holder())
    assert times(node.totals()) == (15, 10, 7.5, 5)


def test_rounding_does_not_make_the_part_more_than_the_whole():
    node = Node().after(0, holder(held=1.0)).after(0.3, holder(held=1.0))
    node.after(0.2, holder(held=1.0), fresh=()).after(0.1, holder(held=1.0), covers=0.3)
    assert times(node.totals()) == (0.6, 0.6, 0.6, 0.6)


STEPS = st.lists(
    st.tuples(
        st.one_of(
            st.none(),
            st.builds(
                holder,
                held=SHARES,
                used=SHARES,
                memory=st.one_of(st.none(), st.integers(0, 100)),
                slices=st.sampled_from((0, 1, 1, 2)),
            ),
        ),
        st.integers(0, 2),  # sweeps since the last poll: more than one if some were missed
        st.floats(0.1, 80),
    ),
    max_size=14,
)


@given(STEPS)
def test_the_measured_part_is_never_more_than_the_whole(steps):
    """Over any life, with the readings as the poller dates them; the sums never fall."""
    node, coverage, sweep, before = Node(), Coverage(), 0, {}
    for shown, sweeps, seconds in steps:
        sweep += sweeps
        reading = GpuReading(identity=GpuIdentity(uuid=UUID, index=0), sweep=sweep)
        _, covered = coverage.advance([reading], node.now + seconds)
        rows = () if shown is None else (shown,)
        node.after(seconds, *rows, fresh=tuple(covered), covers=covered.get(UUID), complete=False)
        for totals in (each.totals for each in node.poll.containers):
            held, memory, entitled, compute = times(totals)
            assert (held is None) == (memory is None)
            assert (entitled is None) == (compute is None)
            assert 0 <= (memory or 0) <= (held or 0)
            assert 0 <= (compute or 0) <= (entitled or 0)
            last = before.get(totals.first_seen, (None,) * 4)
            assert all((new or 0) >= (old or 0) for new, old in zip(times(totals), last, strict=True))
            before[totals.first_seen] = times(totals)
