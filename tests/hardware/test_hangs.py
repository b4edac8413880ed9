"""A call that does not return costs what it asks about, and nothing else."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator

import pytest

from exporter.model import GpuReading
from exporter.nvml.source import NvmlSource
from tests.hardware.making import LARGE, SMALL, Driver, gpu, nvml
from tests.poller.bench import until

PATIENCE = 0.3
MEMORY, PAIR, REGISTER = (
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetTopologyCommonAncestor",
    "nvmlDeviceRegisterEvents",
)


@contextlib.asynccontextmanager
async def source(driver: Driver) -> AsyncIterator[NvmlSource]:
    """Read this driver; calls that still hang at the end return."""
    found = NvmlSource(nvml(driver.library, call_timeout=PATIENCE))
    try:
        yield found
    finally:
        driver.recover()
        await settled(1)
        await found.close()


def threads() -> int:
    """Count the threads that read a driver."""
    return sum(thread.name == "nvml" for thread in threading.enumerate())


async def settled(count: int) -> None:
    """Wait until so many threads are left at most."""
    await until(lambda: threads() <= count, within=5)


async def read(source: NvmlSource) -> dict[str, GpuReading]:
    """Read once, and give the GPUs by uuid."""
    async with asyncio.timeout(10):
        return {gpu.identity.uuid: gpu for gpu in (await source.read()).gpus}


@pytest.fixture
def four(driver: Driver) -> Driver:
    """Give four GPUs."""
    driver.become(*(gpu(name) for name in "abcd"))
    return driver


@pytest.mark.parametrize(
    "function",
    ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID", MEMORY, "nvmlDeviceGetFieldValues", None],
)
async def test_a_gpu_that_hangs_is_down_alone(four: Driver, function: str | None):
    """The others are read in the same poll and in the next, and it is said which GPU hangs."""
    async with source(four) as nvml_source:
        before = await read(nvml_source)
        four.hang(function, device="GPU-b")
        for _ in range(2):
            after = await read(nvml_source)
            assert {name: one.up for name, one in after.items()} == {
                "GPU-a": True,
                "GPU-b": False,
                "GPU-c": True,
                "GPU-d": True,
            }
            assert after["GPU-c"].memory == before["GPU-c"].memory
            assert after["GPU-b"].memory is None
            assert after["GPU-c"].read_at > before["GPU-c"].read_at
        errors = nvml_source.latest.errors
        assert {(uuid, error) for uuid, _, error in errors} == {("GPU-b", "Hangs")}


@pytest.mark.slow
async def test_a_gpu_that_answers_again_is_read_again(four: Driver):
    """Its thread ends when its call returns, and no other has been started for it meanwhile."""
    async with source(four) as nvml_source:
        await read(nvml_source)
        four.hang(MEMORY, device="GPU-b")
        for _ in range(3):
            await read(nvml_source)
        assert threads() == 2
        four.recover()
        await settled(1)
        assert all(one.up for one in (await read(nvml_source)).values())


@pytest.mark.slow
async def test_no_more_threads_hang_than_there_are_gpus(four: Driver):
    """With every GPU hanging a poll comes to its end, and the next ones hang no more threads."""
    async with source(four) as nvml_source:
        await read(nvml_source)
        four.hang(MEMORY)
        for _ in range(3):
            assert not any(one.up for one in (await read(nvml_source)).values())
        assert threads() == 5


@pytest.mark.parametrize("function", ["nvmlDeviceGetName", "nvmlDeviceGetUUID", MEMORY])
async def test_a_mig_device_that_hangs_costs_its_own_values(driver: Driver, function: str):
    """Its GPU and the other MIG device on it are read, with their profiling."""
    driver.become(gpu("a", SMALL, LARGE, gpm=True, architecture=9), gpu("b"))
    async with source(driver) as nvml_source:
        await read(nvml_source)
        before = (await read(nvml_source))["GPU-a"]
        driver.hang(function, device="MIG-small")
        for _ in range(2):
            after = (await read(nvml_source))["GPU-a"]
            assert after.up
            assert after.memory == before.memory
            small, large = sorted(after.mig, key=lambda device: -device.gi)
            assert (small.uuid, small.memory, small.processes) == ("MIG-small", None, None)
            assert large.memory == before.mig[0].memory
            assert (large.profiling is None) == (before.mig[0].profiling is None)
        driver.recover()
        await settled(1)
        assert [device.memory for device in (await read(nvml_source))["GPU-a"].mig] == [
            device.memory for device in before.mig
        ]


async def test_the_way_between_two_gpus_costs_neither(four: Driver):
    """Where a question about two GPUs hangs, both are read, and it is asked the other way round."""
    four.hang(PAIR, device="GPU-b")
    async with source(four) as nvml_source:
        found = await read(nvml_source)
        assert all(one.up for one in found.values())
        assert {name: len(one.topology.peers) for name, one in found.items()} == {
            "GPU-a": 1,
            "GPU-b": 1,
            "GPU-c": 2,
            "GPU-d": 3,
        }
        assert four.asked(PAIR, "GPU-b") == 1


async def test_events_of_the_others_are_waited_for(four: Driver):
    """A GPU at which the registration for events hangs is read no more, until that call returns."""
    four.hang(REGISTER, device="GPU-b")
    async with source(four) as nvml_source:
        await read(nvml_source)
        found = await read(nvml_source)
        assert [name for name, one in found.items() if not one.up] == ["GPU-b"]
        assert nvml_source.latest.watched == {"GPU-a", "GPU-c", "GPU-d"}


async def test_the_driver_is_not_closed_under_a_call_that_hangs(four: Driver):
    """A driver that is to be given up stays open until the call has returned, and is closed then."""
    reasons = [""]
    found = NvmlSource(nvml(four.library, call_timeout=PATIENCE, released=lambda: reasons[0]))
    await read(found)
    four.hang(MEMORY, device="GPU-b")
    await read(found)
    reasons[0] = "it is to be tested"
    with pytest.raises(Exception, match="a call into the driver does not return"):
        await read(found)
    assert four.library.opened == 1
    four.recover()
    await settled(1)
    with pytest.raises(Exception, match="is released"):
        await read(found)
    assert four.library.opened == 0
    await found.close()


@pytest.mark.slow
async def test_a_driver_that_hangs_as_a_whole_gets_no_more_threads(four: Driver):
    """A call about no GPU is waited for, as nothing can be read without it."""
    async with source(four) as nvml_source:
        await read(nvml_source)
        four.hang("nvmlDeviceGetCount_v2")
        task = asyncio.ensure_future(nvml_source.read())
        done, _ = await asyncio.wait({task}, timeout=4 * PATIENCE)
        assert not done
        assert threads() == 1
        four.recover()
        assert (await task).gpu_count == 4
