"""A part of the program that raises costs what it is about, and the rest of the page stays."""

import pytest

from tests.together.faults.cells import must_hold
from tests.together.faults.harness import watched
from tests.together.faults.inside import CELLS, try_cell
from tests.together.faults.nvml_cells import STEP
from tests.together.faults.nvml_nodes import new


@pytest.mark.parametrize("cell", CELLS, ids=str)
async def test_a_part_that_raises_costs_what_it_is_about_and_nothing_else(cell) -> None:
    """Two polls later the page is as before."""
    async with watched(new(), step=STEP) as watch:
        must_hold(await try_cell(watch, cell))
