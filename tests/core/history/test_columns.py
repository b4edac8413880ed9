"""Columns: they hold what was put, and only what changes takes a cell for each slot."""

import math
import tracemalloc
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.history import tiers
from exporter.history.tiers import Column
from exporter.web.node.timelines.routes import history_json
from tests.core.history.snapshots import START, Clocked, holder

SLOTS = 20
PUTS = st.lists(
    st.tuples(st.integers(0, SLOTS - 1), st.sampled_from([None, 0, 0.0, 1, 1.5, 0.1, 2**40 + 1])), max_size=60
)


@given(PUTS)
def test_a_column_holds_what_was_put(puts) -> None:
    """Each place has its last value in 32 bits, or none."""
    column, held = Column(SLOTS), array("f", [math.nan]) * SLOTS
    for at, value in puts:
        column.put(at, value)
        held[at] = math.nan if value is None else value
    assert list(column.ring()) == pytest.approx(list(held), rel=0, abs=0, nan_ok=True)


def _taken(values: list[float | None]) -> int:
    """Return the bytes of a column after these values; what other threads allocate meanwhile is left out."""
    tracemalloc.start()
    column = Column(len(values))
    for at, value in enumerate(values):
        column.put(at, value)
    of_columns = tracemalloc.Filter(inclusive=True, filename_pattern=tiers.__file__)
    traces = tracemalloc.take_snapshot().filter_traces([of_columns]).traces
    tracemalloc.stop()
    return sum(trace.size for trace in traces)


@pytest.mark.parametrize("value", [None, 7.5])
def test_a_constant_takes_no_cell_for_each_slot(value) -> None:
    assert _taken([value] * 720) < 720
    assert _taken([value, *map(float, range(719))]) > 720


def test_writing_a_large_past_takes_little_memory_beyond_the_answer() -> None:
    clocked = Clocked()
    for place in range(300):
        rows = [holder(f"pod-{number}", compute_used=1 / (number + place + 1)) for number in range(20)]
        clocked.poll(START + place * 5, *rows)
    tracemalloc.start()
    past = clocked.past(3600, points=720)
    body = history_json(past)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(past.tracks) == 20
    assert peak < 3.4 * len(body)
