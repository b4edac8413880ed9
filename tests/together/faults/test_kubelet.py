"""The kubelet's sockets in every bad state: nothing leaves the page at once, and all is well after it."""

import asyncio
from collections.abc import Mapping

import pytest

from exporter.demo.scenario import KubeletFailure
from tests.together.faults.cells import Cell, Result, must_hold
from tests.together.faults.harness import scenario_fault, watched
from tests.together.faults.kubelet import CELLS, FAULTS, node
from tests.together.faults.kubelet_long import STALE, hold_filling, hold_stale
from tests.together.faults.matrices import kubelets
from tests.together.faults.pages import Page


@pytest.fixture(scope="module")
def results() -> Mapping[Cell, Result]:
    """Try every cell on one node, one after the other."""
    return asyncio.run(_results())


async def _results() -> Mapping[Cell, Result]:
    return {result.cell: result async for result in kubelets()}


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_kubelet_that_fails_for_a_poll_costs_nothing_but_its_health(results, cell) -> None:
    """The page is as it was, the collector says why it fails, and two polls later it is well."""
    must_hold(results[cell])


async def test_a_kubelet_that_stays_away_costs_holdings_and_nothing_else() -> None:
    """After ``--stale-after`` holdings are unknown, not none; all of them come back with the kubelet."""
    async with watched(node(), stale_after=STALE) as watch:
        must_hold(await hold_stale(watch))


@pytest.mark.parametrize("how", [name for name in FAULTS if name.startswith("a new socket with")])
async def test_a_kubelet_that_fills_up_for_long_costs_nothing(how: str) -> None:
    """Holders that run outlive ``--stale-after``; no number changes until the list is complete."""
    async with watched(node(), stale_after=STALE) as watch:
        must_hold(await hold_filling(watch, how))


async def test_a_kubelet_that_is_absent_from_the_start_is_noticed_when_it_comes() -> None:
    """Until then devices are shown without holders; then the page is that of a node which always had one."""
    async with watched(node()) as watch:
        async with scenario_fault(watch, KubeletFailure(kind="kubelet_down")):
            first = await watch.poll()
        assert first.value("gpuslice_collector_success", collector="podresources") == 0
        assert not list(first.series("gpuslice_gpu_holders"))
        assert len(list(first.series("gpuslice_gpu_memory_used_bytes"))) == 2
        assert not list(first.series("gpuslice_container_slices"))
        assert _holders(await watch.poll()) == {"a": 1, "b": 1, "c": 1}


def _holders(page: Page) -> dict[str, float]:
    return {labels["pod"]: value for labels, value in page.series("gpuslice_container_slices")}
