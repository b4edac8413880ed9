"""What a poll joins is of one moment: no holdings of a poll before, and no sweep that came late."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.demo.scenario import catalog
from exporter.model import Allocations
from exporter.poll.snapshot_builder import PollResult, SnapshotBuilder
from podresources.channel import KubeletError
from tests.core.attribution.build import GIB, UUID, gpu, held, whole, workloads
from tests.core.poller.bench import DEFAULTS, QUICK, brief_waits, failing, polled, rows

ANNA = "nb-anna"


def without(allocations, pod):
    """Return the allocations before a pod was admitted."""
    kept = tuple(each for each in allocations.allocated if each.holder.pod != pod)
    return replace(allocations, allocated=kept)


async def slices_while(poller, node, meanwhile):
    """Poll before a pod is admitted, while the kubelet's answer is that of ``meanwhile``, and after that."""
    real = poller._allocations._read

    async def before():
        return without(await real(), ANNA)

    found = []
    for second, read in ((0, before), (5, meanwhile), (10, real)):
        poller._allocations._read = read
        await node.step(second)
        found.append([row.slices for row in rows(await poller.poll(), ANNA)])
    return found


async def test_while_the_kubelet_is_silent_no_container_is_shown_without_slices():
    """A pod that was admitted meanwhile has its slice with the next answer."""

    async def silent():
        raise KubeletError("unavailable", Path("kubelet.sock"), "it restarts")

    async with polled(catalog.load("t4-timeslicing"), **QUICK) as (node, poller):
        assert await slices_while(poller, node, silent) == [[0], [None], [1]]


async def test_a_late_answer_of_the_kubelet_proves_no_container_without_slices():
    async with polled(catalog.load("t4-timeslicing"), **QUICK) as (node, poller):
        real, over = poller._allocations._read, asyncio.Event()

        async def late():
            answer = without(await real(), ANNA)
            await over.wait()
            return answer

        poller._allocations._read = late
        with brief_waits(poller, "podresources"):
            assert "podresources" in failing(await poller.poll())
        poller._allocations._read = real
        over.set()
        await asyncio.wait({poller._allocations._task})
        await node.step(5)
        assert [row.slices for row in rows(await poller.poll(), ANNA)] == [None]
        assert failing(poller.snapshot) == set()
        await node.step(10)
        assert [row.slices for row in rows(await poller.poll(), ANNA)] == [1]


@pytest.mark.parametrize("name", ["t4-timeslicing", "h100-exclusive"])
async def test_a_sweep_that_ends_between_two_polls_proves_no_absence(name: str):
    async with polled(catalog.load(name), **QUICK) as (node, poller):
        nvml = poller._sources.nvml
        real, over = nvml.read, asyncio.Event()

        async def slow():
            await over.wait()
            read = await real()
            # No process had started yet.
            unused = tuple(
                replace(gpu, processes=(), memory=replace(gpu.memory, used=0, free=gpu.memory.total))
                for gpu in nvml.latest.gpus
            )
            nvml._latest = replace(nvml.latest, gpus=unused)
            return read

        before = await poller.poll()
        assert any(row.memory_used for row in before.containers)
        poller._devices._nvml._read = slow
        await node.step(5)
        with brief_waits(poller, "nvml"):
            assert failing(await poller.poll()) == {"nvml"}
        poller._devices._nvml._read = real
        over.set()
        await asyncio.wait({poller._devices._nvml._task})
        await node.step(10)
        taken = await poller.poll()
        assert failing(taken) == set()
        assert taken.containers
        assert {(row.memory_used, row.processes) for row in taken.containers} == {(None, None)}
        await node.step(15)
        again = (await poller.poll()).containers
        assert {row.holder: row.processes for row in again} == {
            row.holder: row.processes for row in before.containers
        }


@pytest.mark.parametrize(
    ("now", "confirmed", "used"), [("a", True, 14 * GIB), ("b", True, None), ("a", False, None)]
)
def test_a_late_sweep_counts_for_a_container_that_held_the_device_before_and_after_it(
    now: str, confirmed: bool, used
):
    builder = SnapshotBuilder(DEFAULTS, demo=False)

    def poll(pod, number, **more):
        allocations = Allocations(
            allocated=tuple(held(pod, UUID)), offered=tuple(whole()), api_version="v1", read_at=0
        )
        reading = gpu(None, used=14 * GIB, sweep=number)
        found = PollResult(gpus=(reading,), allocations=allocations, workloads=workloads(view=False), **more)
        return rows(builder.snapshot(found, (), 5.0 * number, 5.0 * number), pod)

    assert [row.memory_used for row in poll("a", 1)] == [14 * GIB]
    [row] = poll(now, 2, confirmed=confirmed, late=frozenset({UUID}))
    assert row.memory_used == used
