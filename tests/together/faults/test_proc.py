"""Files of processes that cannot be read, or not in time, cost the use of one GPU and make no false zero."""

import asyncio
from collections.abc import Mapping

import pytest

from tests.together.faults.cells import Cell, Result, must_hold
from tests.together.faults.layout import QUIET_PID, bench
from tests.together.faults.layout_checks import check_sums
from tests.together.faults.limits import short
from tests.together.faults.matrices import processes
from tests.together.faults.proc import CELLS, hanging


@pytest.fixture(scope="module")
def results() -> Mapping[Cell, Result]:
    """Try every cell on one node, one after the other."""
    return asyncio.run(_results())


async def _results() -> Mapping[Cell, Result]:
    return {result.cell: result async for result in processes()}


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_what_cannot_be_read_of_a_process_is_not_known_and_not_zero(results, cell) -> None:
    """Other GPUs keep their values, the unattributed use of this one stays, and it recovers by itself."""
    must_hold(results[cell])


async def test_while_the_process_table_hangs_a_reused_pid_is_not_given_to_its_last_container() -> None:
    """The number of a process that ended is given to a neighbour, whose memory is not the other pod's."""
    async with bench("pid given to a neighbour") as found:
        processes = found.watch.poller._processes
        earlier = await found.page()
        with short(processes):
            async with hanging(found.node.paths.proc_root / str(QUIET_PID) / "stat"):
                await found.change()
                page = await found.page()
            await asyncio.wait({processes._task})
        assert page.value("gpuslice_process_attribution_available") == 0
        assert page.value("gpuslice_container_memory_used_bytes", pod="web") in (None, 0)
        check_sums(page, earlier)
        await found.page()
        after = await found.page()
        assert after.value("gpuslice_container_memory_used_bytes", pod="web") == 0
        assert after.value("gpuslice_container_memory_used_bytes", pod="neighbour") == 2222 << 20
