"""A call of NVML that does not return costs what it is about, and is taken back when it returns."""

import pytest

from exporter.demo.scenario import NvmlHang
from exporter.nvml import event_wait
from tests.together.faults import matrices, nvml_nodes, quick
from tests.together.faults.harness import scenario_fault, watched
from tests.together.faults.nvml_cells import OF_EVENTS, STEP, WAIT
from tests.together.faults.pages import name_of
from tests.together.faults.test_nvml_errors import hold
from tests.waiting import wait_until_async


@pytest.mark.parametrize("part", range(2))
async def test_a_call_that_hangs_costs_what_it_is_about_until_it_returns(part: int) -> None:
    """Other devices, sums, truth, health, a page that answers meanwhile, recovery, no thread left over."""
    await hold(matrices.hangs((part, 2), select=quick.cases), least=40)


async def test_so_does_a_call_that_hangs_and_that_only_other_drivers_and_boards_are_asked() -> None:
    """The older forms of calls, and those about vGPUs."""
    await hold(matrices.hangs_of_others(select=quick.cases), least=15)


async def test_a_wait_for_events_that_hangs_costs_what_only_events_show(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until it returns, GPUs are not watched and counts of XIDs are unknown; the rest of the page stays."""
    async with watched(nvml_nodes.new(), step=STEP) as watch:
        before = (await watch.before()).page
        wait = watch.poller._sources.nvml._sweeper.events._wait
        assert wait is not None
        fault = NvmlHang(kind="nvml_hang", function=WAIT, device=None, seconds=None)
        async with watch.calls.hanging(fault, returns=False), scenario_fault(watch, fault):
            await wait_until_async(lambda: wait._thread.ident in watch.calls.hung_threads)
            with monkeypatch.context() as short:
                # Any wait has taken too long, and there is no use in waiting for its end.
                short.setattr(event_wait, "HUNG_SECONDS", -1.0)
                short.setattr(event_wait, "END_SECONDS", 0.0)
                await watch.poll()
                page = await watch.poll()
        await wait_until_async(lambda: not wait._thread.is_alive())
        recovered = await watch.poll()
    assert {name_of(series) for series in before.samples.keys() - page.samples.keys()} == OF_EVENTS
    assert {value for _, value in page.series("gpuslice_gpu_events_watched")} == {0}
    assert recovered.samples.keys() >= before.samples.keys()
    watched_before = list(before.series("gpuslice_gpu_events_watched"))
    assert list(recovered.series("gpuslice_gpu_events_watched")) == watched_before
