"""A file of a sharing system that is spoiled costs what it is about, and no other system's numbers."""

import pytest

from tests.together.faults import quick, sharing
from tests.together.faults.cells import must_hold


@pytest.mark.parametrize("name", sharing.NODES)
async def test_a_spoiled_file_costs_what_it_is_about_and_nothing_else(name: str) -> None:
    """Each kind of file that a poll opens, in each state: before the poll, at opening, while it is read."""
    results = await sharing.run_node(name, quick.files)
    assert len(results) >= 10
    for result in results:
        must_hold(result)
