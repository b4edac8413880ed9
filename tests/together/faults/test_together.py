"""Driver, kubelet, files and join that hang at once: polls end, and no number is wrong."""

import asyncio
from collections.abc import Mapping

import pytest

from tests.together.faults.cells import Cell, Result, must_hold
from tests.together.faults.matrices import several
from tests.together.faults.together import CELLS


@pytest.fixture(scope="module")
def results() -> Mapping[Cell, Result]:
    """Try every cell on one node, one after the other."""
    return asyncio.run(_results())


async def _results() -> Mapping[Cell, Result]:
    return {result.cell: result async for result in several()}


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_polls_end_while_several_parts_hang(results: Mapping[Cell, Result], cell: Cell) -> None:
    """Values on the page are right or absent, and two polls later at most it is as before."""
    must_hold(results[cell])
