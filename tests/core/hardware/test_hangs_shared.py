"""Calls that hang although they are about no device, and resources of the driver while a call hangs."""

import threading
from ctypes import c_void_p, cast
from typing import Any

import pytest

from exporter.nvml.driver.library import DriverError
from tests.core.hardware.hanging import HANG_SECONDS, MEMORY, REGISTER, Reader
from tests.core.hardware.making import LARGE, SMALL, Clock, Driver, gpu

pytestmark = pytest.mark.usefixtures("hang_clock")
NAMES = "abcd"


def freed(driver: Driver, function: str) -> list[int]:
    """Return a list that grows by the address of each resource freed with ``function``."""
    addresses: list[int] = []
    real = getattr(driver.library, function)

    def free(resource: Any) -> int:
        addresses.append(cast(resource, c_void_p).value or 0)
        return real(resource)

    setattr(driver.library, function, free)
    return addresses


@pytest.mark.parametrize("function", ["nvmlEventSetCreate", "nvmlGpmSampleAlloc"])
async def test_a_hang_in_a_call_for_all_gpus_takes_none_down(driver: Driver, function: str):
    driver.become(*(gpu(name, gpm=True, architecture=9) for name in NAMES))
    driver.hang(function)
    async with Reader(driver) as reader:
        for _ in range(2):
            readings = await reader.read()
            assert {name: one.up for name, one in readings.items()} == {f"GPU-{name}": True for name in NAMES}
        assert reader.threads() == 2
        assert "Hangs" in {error for _, _, error in reader.source.latest.errors}


async def test_a_set_of_events_is_not_freed_under_a_registration_that_hangs(driver: Driver):
    driver.become(*(gpu(name) for name in NAMES))
    sets = freed(driver, "nvmlEventSetFree")
    driver.hang(REGISTER, device="GPU-a")
    async with Reader(driver) as reader:
        for _ in range(3):
            await reader.read()
        assert sets == []
        assert reader.source.latest.watched == {"GPU-b", "GPU-c", "GPU-d"}


async def test_a_buffer_is_not_freed_while_a_call_writes_into_it(driver: Driver, hang_clock: Clock):
    """Buffers of a MIG device that was removed are freed once the call has returned."""
    driver.become(gpu("a", SMALL, LARGE, gpm=True, architecture=9), gpu("b"))
    buffers, written = freed(driver, "nvmlGpmSampleFree"), []
    hangs, gate = threading.Event(), threading.Event()
    real = driver.library.nvmlGpmMigSampleGet

    def hanging(handle: Any, gi: int, sample: Any) -> int:
        if gi == 7 and hangs.is_set():
            written.append(cast(sample, c_void_p).value)
            hang_clock.now += HANG_SECONDS
            gate.wait()
        return real(handle, gi, sample)

    driver.library.nvmlGpmMigSampleGet = hanging
    async with Reader(driver) as reader:
        await reader.read()
        hangs.set()
        await reader.read()
        assert len(written) == 1
        driver.become(gpu("a", LARGE, gpm=True, architecture=9), gpu("b"))
        await reader.read()
        assert not set(written) & set(buffers)
        gate.set()
        await reader.settle()
        await reader.read()
        assert set(written) <= set(buffers)


async def test_freeing_that_hangs_takes_no_gpu_down(driver: Driver):
    """Buffers of a removed MIG device are leaked."""
    driver.become(gpu("a", SMALL, LARGE, gpm=True, architecture=9), gpu("b"))
    async with Reader(driver) as reader:
        await reader.read()
        driver.hang("nvmlGpmSampleFree")
        driver.become(gpu("a", LARGE, gpm=True, architecture=9), gpu("b"))
        for _ in range(3):
            readings = await reader.read()
            assert {name: one.up for name, one in readings.items()} == {"GPU-a": True, "GPU-b": True}
        assert reader.threads() == 2


async def test_a_driver_that_a_hung_call_keeps_from_being_reopened_needs_a_restart(driver: Driver):
    driver.become(gpu("a"), gpu("b"))
    async with Reader(driver) as reader:
        await reader.read()
        driver.hang(MEMORY, device="GPU-a")
        await reader.read()
        driver.fail("UNINITIALIZED", None)
        with pytest.raises(DriverError, match="restart the pod"):
            await reader.read()
        assert "a call into the driver does not return" in (reader.source.restart_reason or "")
        await reader.recover()
        assert all(one.up for one in (await reader.read()).values())
        assert reader.source.restart_reason is None
