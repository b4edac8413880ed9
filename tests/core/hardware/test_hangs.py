"""A call that does not return costs the part of the node that it is about, and nothing else."""

import asyncio

import pytest

from exporter.nvml.driver.library import DriverError
from exporter.nvml.sweep import Sweeper
from tests.core.hardware.hanging import MEMORY, PAIR, REGISTER, Reader
from tests.core.hardware.making import LARGE, SMALL, Driver, gpu
from tests.waiting import wait_until_async

pytestmark = pytest.mark.usefixtures("hang_clock")


@pytest.fixture
def four(driver: Driver) -> Driver:
    """Return a driver of four GPUs."""
    driver.become(*(gpu(name) for name in "abcd"))
    return driver


@pytest.mark.parametrize(
    "function",
    ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID", MEMORY, "nvmlDeviceGetFieldValues", None],
)
async def test_only_the_gpu_that_hangs_is_down(four: Driver, function: str | None):
    async with Reader(four) as reader:
        before = await reader.read()
        four.hang(function, device="GPU-b")
        for sweep in range(2, 4):
            after = await reader.read()
            assert {name: one.up for name, one in after.items()} == {
                f"GPU-{name}": name != "b" for name in "abcd"
            }
            assert after["GPU-c"].memory == before["GPU-c"].memory
            assert after["GPU-b"].memory is None
            assert after["GPU-c"].sweep >= sweep
        assert {(uuid, error) for uuid, _, error in reader.source.latest.errors} == {("GPU-b", "Hangs")}


async def test_a_gpu_that_hangs_holds_one_thread_and_is_read_again_when_it_answers(four: Driver):
    async with Reader(four) as reader:
        await reader.read()
        four.hang(MEMORY, device="GPU-b")
        for _ in range(3):
            await reader.read()
        assert reader.threads() == 2
        await reader.recover()
        assert all(one.up for one in (await reader.read()).values())


async def test_no_more_threads_hang_than_there_are_gpus(four: Driver):
    async with Reader(four) as reader:
        await reader.read()
        four.hang(MEMORY)
        for _ in range(3):
            assert not any(one.up for one in (await reader.read()).values())
        assert reader.threads() == 5


@pytest.mark.parametrize("function", ["nvmlDeviceGetName", "nvmlDeviceGetUUID", MEMORY])
async def test_a_mig_device_that_hangs_costs_its_own_values(driver: Driver, function: str):
    """Its GPU and the other MIG device on it are read, with their profiling."""
    driver.become(gpu("a", SMALL, LARGE, gpm=True, architecture=9), gpu("b"))
    async with Reader(driver) as reader:
        await reader.read()
        before = (await reader.read())["GPU-a"]
        driver.hang(function, device="MIG-small")
        for _ in range(2):
            after = (await reader.read())["GPU-a"]
            assert after.up
            assert after.memory == before.memory
            small, large = sorted(after.mig, key=lambda device: -device.gi)
            assert (small.uuid, small.memory, small.processes) == ("MIG-small", None, None)
            assert large.memory == before.mig[0].memory
            assert (large.profiling is None) == (before.mig[0].profiling is None)
        await reader.recover()
        again = (await reader.read())["GPU-a"]
        assert [device.memory for device in again.mig] == [device.memory for device in before.mig]


async def test_a_question_about_two_gpus_that_hangs_takes_neither_down(four: Driver):
    """It is asked the other way round for the other pairs."""
    four.hang(PAIR, device="GPU-b")
    async with Reader(four) as reader:
        readings = await reader.read()
        assert all(one.up for one in readings.values())
        assert {name: len(one.topology.peers) for name, one in readings.items()} == {
            "GPU-a": 1,
            "GPU-b": 1,
            "GPU-c": 2,
            "GPU-d": 3,
        }
        assert four.asked(PAIR, "GPU-b") == 1


async def test_a_registration_for_events_that_hangs_takes_its_gpu_down_only(four: Driver):
    four.hang(REGISTER, device="GPU-b")
    async with Reader(four) as reader:
        await reader.read()
        readings = await reader.read()
        assert [name for name, one in readings.items() if not one.up] == ["GPU-b"]
        assert reader.source.latest.watched == {"GPU-a", "GPU-c", "GPU-d"}


async def test_the_driver_is_not_released_under_a_call_that_hangs(four: Driver):
    released = [""]
    async with Reader(four, released=lambda: released[0]) as reader:
        await reader.read()
        four.hang(MEMORY, device="GPU-b")
        await reader.read()
        released[0] = "of a test"
        with pytest.raises(DriverError, match="a call into the driver does not return"):
            await reader.read()
        assert four.library.opened == 1
        await reader.recover()
        with pytest.raises(DriverError, match="is released"):
            await reader.read()
        assert four.library.opened == 0


async def test_a_call_about_the_whole_driver_is_never_abandoned(
    four: Driver, monkeypatch: pytest.MonkeyPatch
):
    checks: list[bool] = []
    check = Sweeper.abandon_if_hung
    monkeypatch.setattr(
        Sweeper,
        "abandon_if_hung",
        lambda *arguments: checks.append(check(*arguments)) or checks[-1],
    )
    async with Reader(four) as reader:
        await reader.read()
        four.hang("nvmlDeviceGetCount_v2")
        counts = four.asked("nvmlDeviceGetCount_v2")
        reading = asyncio.ensure_future(reader.source.read())
        await wait_until_async(lambda: four.asked("nvmlDeviceGetCount_v2") > counts)
        checks.clear()
        await wait_until_async(lambda: len(checks) >= 3)
        assert not any(checks)
        assert not reading.done()
        assert reader.threads() == 1
        four.recover()
        assert (await reading).gpu_count == 4
