"""A call of NVML that does not return costs what it is about, and is taken back when it returns."""

import pytest

from tests.faults import nvml_nodes
from tests.faults.harness import must_hold
from tests.faults.nvml_calls import asked_of
from tests.faults.nvml_hangs import results

# The functions are taken in turns by so many tests, which mostly wait and can do so side by side. Of many
# parts `make test` tries the first, which is a few functions.
PARTS, MANY = 3, 12
LEAST_CELLS = 36


@pytest.mark.parametrize(
    "part",
    [(0, MANY), *(pytest.param((part, PARTS), marks=pytest.mark.slow) for part in range(PARTS))],
    ids=str,
)
async def test_a_call_that_hangs_costs_what_it_is_about_and_nothing_else(part: tuple[int, int]) -> None:
    """Other devices, sums, truth, health, a page that answers meanwhile, recovery, no thread left over."""
    seen = 0
    async for result in results(nvml_nodes.new(), every=False, part=part):
        must_hold(result)
        seen += 1
    assert seen > LEAST_CELLS // part[1]


@pytest.mark.slow
async def test_so_does_a_hang_in_a_call_that_only_other_drivers_and_boards_are_asked() -> None:
    """The older forms of calls, and those about vGPUs."""
    others = await asked_of(nvml_nodes.new())
    seen = 0
    async for result in results(nvml_nodes.old(), every=False, skip=others):
        must_hold(result)
        seen += 1
    assert seen > 10
