"""A node that changes in the middle of a poll is shown as it was or as it is, and then as it is."""

from tests.together.faults.cells import must_hold
from tests.together.faults.layout import CHANGES, results, some_of
from tests.together.faults.layout_moments import KINDS


async def test_a_change_in_the_middle_of_a_poll_makes_no_mixture() -> None:
    """Every change at the first, the middle and the last call, request and file of a poll."""
    tried = 0
    async for result in results(some_of):
        must_hold(result)
        tried += 1
    assert tried == len(CHANGES) * len(KINDS)
