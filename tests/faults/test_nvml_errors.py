"""An error of NVML costs what it is about, says so, and is over when it is over."""

from tests.faults import nvml_nodes
from tests.faults.cells import must_hold
from tests.faults.nvml_errors import results

# Every so manieth function, with a code of each kind; the matrix has all functions, codes and places.
EVERY = 30
LEAST_CELLS = 5


async def test_an_error_of_a_call_costs_what_it_is_about_and_nothing_else() -> None:
    """For some functions and each kind of code: other devices, sums, truth, health, the page and recovery."""
    seen = 0
    async for result in results(nvml_nodes.new(), every=False, part=(0, EVERY)):
        must_hold(result)
        seen += 1
    assert seen > LEAST_CELLS
