"""MIG devices and pods that come and go at any moment of a poll."""

import pytest

from tests.faults.layout import CHANGES, run_changes
from tests.faults.layout_moments import Kind

# Every so manieth call into the driver; of the others, which are few, all.
STRIDES: dict[Kind, int] = {"nvml": 14, "kubelet": 1, "files": 6}


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
async def test_a_poll_in_which_the_node_changes_shows_what_was_or_what_is(change: str) -> None:
    """At each moment: old or new layout, sums that hold, nobody's use as another's; then the new truth."""
    tried, wrong = await run_changes(change, STRIDES)
    assert tried > 10
    assert not wrong
