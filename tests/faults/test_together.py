"""Driver, kubelet, files and join that hang at once: polls end in time, and no number is false."""

import asyncio
from collections.abc import Mapping

import pytest

from tests.faults.cells import Cell, Result, must_hold
from tests.faults.matrices import several
from tests.faults.together import CELLS


@pytest.fixture(scope="module")
def results() -> Mapping[Cell, Result]:
    """Try every cell on one node, one after the other."""
    return asyncio.run(_results())


async def _results() -> Mapping[Cell, Result]:
    return {result.cell: result async for result in several()}


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_what_hangs_together_takes_no_poll_longer_than_its_interval(
    results: Mapping[Cell, Result], cell: Cell
) -> None:
    """What stands on the page is true meanwhile, and it is as before at the second poll at most."""
    must_hold(results[cell])
