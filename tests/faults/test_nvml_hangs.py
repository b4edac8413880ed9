"""A call of NVML that does not return costs what it is about, and is taken back when it returns."""

import asyncio
import threading

import pytest

from exporter.demo.scenario import NvmlHang
from exporter.nvml import event_wait
from tests.faults import nvml_nodes
from tests.faults.cells import must_hold
from tests.faults.harness import scenario_fault, watched
from tests.faults.nvml_calls import asked_of
from tests.faults.nvml_cells import OF_EVENTS, STEP, WAIT
from tests.faults.nvml_hangs import CALL_TIMEOUT, late, results
from tests.faults.pages import name_of
from tests.poller.bench import until

LEAST_CELLS = 8
# A wait hangs after so long in the test of its own; healthy ones take a tenth.
HUNG_SECONDS = 1.0


@pytest.mark.slow
async def test_a_call_that_returns_late_costs_what_it_is_about_until_then() -> None:
    """Other devices, sums, truth, health, a page that answers meanwhile, recovery, no thread left over.

    Calls that return soon or never are in the matrix, all of them.
    """
    seen = 0
    async for result in results(nvml_nodes.new(), late):
        must_hold(result)
        seen += 1
    assert seen >= LEAST_CELLS


@pytest.mark.slow
async def test_so_does_a_late_call_that_only_other_drivers_and_boards_are_asked() -> None:
    """The older forms of calls, and those about vGPUs."""
    others = await asked_of(nvml_nodes.new())
    seen = 0
    async for result in results(nvml_nodes.old(), late, skip=others):
        must_hold(result)
        seen += 1
    assert seen > 1


@pytest.mark.slow
async def test_a_wait_for_events_that_hangs_costs_what_only_events_show(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until it returns, GPUs are not watched and counts of XIDs are unknown; the rest of the page stays."""
    monkeypatch.setattr(event_wait, "HUNG_SECONDS", HUNG_SECONDS)
    earlier = threading.enumerate()
    async with watched(
        nvml_nodes.new(), step=STEP, call_timeout=CALL_TIMEOUT, deadline=2 * CALL_TIMEOUT
    ) as watch:
        before = (await watch.before()).page
        [waiting] = (
            each for each in threading.enumerate() if each.name == "nvml-events" and each not in earlier
        )
        async with scenario_fault(
            watch, NvmlHang(kind="nvml_hang", function=WAIT, device=None, seconds=None)
        ):
            await asyncio.sleep(2 * HUNG_SECONDS)
            await watch.poll()
            page = await watch.poll()
        await until(lambda: not waiting.is_alive(), within=5.0)
        recovered = await watch.poll()
    lost = {name_of(series) for series in before.samples.keys() - page.samples.keys()}
    assert lost == OF_EVENTS
    assert {value for _, value in page.series("gpuslice_gpu_events_watched")} == {0}
    assert recovered.samples.keys() >= before.samples.keys()
    assert list(recovered.series("gpuslice_gpu_events_watched")) == list(
        before.series("gpuslice_gpu_events_watched")
    )
