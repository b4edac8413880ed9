"""A kubelet that is away, or incomplete, for longer than its last answer is used."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

from tests.together.faults.cells import Claim, Result
from tests.together.faults.harness import Watch
from tests.together.faults.kubelet import BOTH, FAULTS, HEALTH, POD_RESOURCES, cell_of, claim_of, outcome
from tests.together.faults.pages import Page, name_of

STALE, LATER = 30.0, 31.0
"""Seconds after which an answer of the kubelet is too old, and more than those."""
# What is known only from it.
OF_HOLDINGS = (
    "gpuslice_allocations",
    "gpuslice_container_",
    "gpuslice_gpu_holders",
    "gpuslice_gpu_slices",
    "gpuslice_gpu_sharing",
    "gpuslice_gpu_memory_entitled",
    "gpuslice_gpu_compute_entitled",
    "gpuslice_gpu_info",
    "gpuslice_unlisted_pods",
)


async def hold_stale(watch: Watch) -> Result:
    """Take the kubelet away for longer than its last answer is used."""
    cell = cell_of(POD_RESOURCES, "absent for long")

    @contextlib.asynccontextmanager
    async def put() -> AsyncIterator[None]:
        async with FAULTS["absent"].put(watch, watch.node.kubelet.socket):
            watch.age += LATER
            yield

    def health(before: Page, page: Page) -> Iterator[str]:
        yield from claim_of(replace(cell, how="absent")).health(before, page)
        for family in ("gpuslice_container_slices", "gpuslice_gpu_holders"):
            if list(page.series(family)):
                yield f"{family} is still shown without a kubelet"
        if page.total("gpuslice_container_memory_used_bytes") == 0:
            yield "the use of processes has left with the kubelet"

    page = (await watch.before()).page
    # These carry the names of the pods that hold a GPU.
    labelled = {name_of(series) for series in page.samples if series.startswith("DCGM_")}

    def own(series: str) -> bool:
        return name_of(series) in HEALTH | labelled or series.startswith(OF_HOLDINGS)

    return await watch.under(cell, put(), Claim(own=own, health=health, states=HEALTH | labelled), outcome)


async def hold_filling(watch: Watch, how: str) -> Result:
    """Let a restarted kubelet be incomplete for longer than its last answer is used."""
    cell = cell_of(BOTH, f"{how}, for long")

    @contextlib.asynccontextmanager
    async def put() -> AsyncIterator[None]:
        async with FAULTS[how].put(watch, watch.node.kubelet.socket):
            await watch.poll()
            watch.age += LATER
            yield

    return await watch.under(cell, put(), claim_of(replace(cell, how=how)), outcome)
