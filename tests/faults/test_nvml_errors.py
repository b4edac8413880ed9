"""An error of NVML costs what it is about, says so, and is over when it is over."""

import pytest

from tests.faults import nvml_nodes
from tests.faults.harness import must_hold
from tests.faults.nvml_calls import asked_of
from tests.faults.nvml_errors import results

# The functions of the newer driver are taken in turns by so many tests, which can run side by side. Of many
# parts `make test` tries the first, which is a few functions.
PARTS, MANY = 3, 30
LEAST_CELLS = 150


@pytest.mark.parametrize(
    "part",
    [(0, MANY), *(pytest.param((part, PARTS), marks=pytest.mark.slow) for part in range(PARTS))],
    ids=str,
)
async def test_an_error_of_a_call_costs_what_it_is_about_and_nothing_else(part: tuple[int, int]) -> None:
    """For each function and each kind of code: other devices, sums, truth, health, the page and recovery."""
    seen = 0
    async for result in results(nvml_nodes.new(), every=False, part=part):
        must_hold(result)
        seen += 1
    assert seen > LEAST_CELLS // part[1]


@pytest.mark.slow
async def test_so_does_an_error_of_a_call_that_only_other_drivers_and_boards_are_asked() -> None:
    """The older forms of calls, and those about vGPUs."""
    others = await asked_of(nvml_nodes.new())
    seen = 0
    async for result in results(nvml_nodes.old(), every=False, skip=others):
        must_hold(result)
        seen += 1
    assert seen > 30
