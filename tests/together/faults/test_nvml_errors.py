"""An error of NVML costs what it is about, says so, and is over when it is over."""

from collections.abc import AsyncIterator

import pytest

from tests.together.faults import matrices, quick
from tests.together.faults.cells import Result, must_hold


@pytest.mark.parametrize("part", range(2))
async def test_an_error_of_a_call_costs_what_it_is_about_and_nothing_else(part: int) -> None:
    """Other devices, sums, truth, health, the page and recovery."""
    await hold(matrices.errors((part, 2), select=quick.cases), least=50)


async def test_so_does_an_error_of_a_call_that_only_other_drivers_and_boards_are_asked() -> None:
    """The older forms of calls, and those about vGPUs."""
    await hold(matrices.errors_of_others(select=quick.cases), least=30)


async def hold(results: AsyncIterator[Result], least: int) -> None:
    """Require that there are some cells, and that all of them keep their claims."""
    tried = 0
    async for result in results:
        must_hold(result)
        tried += 1
    assert tried >= least
