"""Files of sharing systems that vanish, break or hang while they are read."""

from functools import partial

import pytest

from tests.faults.harness import must_hold
from tests.faults.sharing import NODES, covering, run_node

# Each node tries every so manieth way to spoil a file; together they try all of them.
EVERY = 4


@pytest.mark.slow
@pytest.mark.parametrize("name", NODES)
async def test_a_file_that_breaks_costs_what_it_tells_and_comes_back_by_itself(name: str) -> None:
    """The process lives, no other pod is touched, nothing false stands in, and it is counted."""
    results = await run_node(name, partial(covering, every=EVERY, begin=NODES.index(name)))
    assert len(results) >= 2
    for result in results:
        must_hold(result)
