"""Calls that hang although they are about no device, and what is lent by the driver while any call hangs."""

import threading
from ctypes import c_void_p, cast
from typing import Any

import pytest

from exporter.nvml.driver.library import DriverError
from tests.hardware.making import LARGE, SMALL, Driver, gpu
from tests.hardware.test_hangs import REGISTER, read, settled, source, threads

NAMES = "abcd"


def freed(driver: Driver, function: str) -> list[int]:
    """Note the addresses of what is given back by a function of the driver."""
    found: list[int] = []
    real = getattr(driver.library, function)

    def free(lent: Any) -> int:
        found.append(cast(lent, c_void_p).value or 0)
        return real(lent)

    setattr(driver.library, function, free)
    return found


@pytest.mark.parametrize("function", ["nvmlEventSetCreate", "nvmlGpmSampleAlloc"])
async def test_what_hangs_for_all_gpus_costs_none_of_them(driver: Driver, function: str):
    """One thread hangs; all GPUs are read in the same poll and in the next."""
    driver.become(*(gpu(name, gpm=True, architecture=9) for name in NAMES))
    driver.hang(function)
    async with source(driver) as nvml_source:
        for _ in range(2):
            found = await read(nvml_source)
            assert {name: one.up for name, one in found.items()} == {f"GPU-{name}": True for name in NAMES}
        assert threads() == 2
        assert "Hangs" in {error for _, _, error in nvml_source.latest.errors}


async def test_a_set_of_events_is_not_freed_under_a_registration_that_hangs(driver: Driver):
    """The call may still write into it."""
    driver.become(*(gpu(name) for name in NAMES))
    sets = freed(driver, "nvmlEventSetFree")
    driver.hang(REGISTER, device="GPU-a")
    async with source(driver) as nvml_source:
        for _ in range(3):
            await read(nvml_source)
        assert sets == []
        assert nvml_source.latest.watched == {"GPU-b", "GPU-c", "GPU-d"}


async def test_a_buffer_is_not_freed_while_a_call_writes_into_it(driver: Driver):
    """A MIG device that is gone while its meter hangs gives its buffers back when the call has returned."""
    driver.become(gpu("a", SMALL, LARGE, gpm=True, architecture=9), gpu("b"))
    buffers, written = freed(driver, "nvmlGpmSampleFree"), []
    hangs, gate = threading.Event(), threading.Event()
    real = driver.library.nvmlGpmMigSampleGet

    def hanging(handle: Any, gi: int, sample: Any) -> int:
        if gi == 7 and hangs.is_set():
            written.append(cast(sample, c_void_p).value)
            gate.wait(20)
        return real(handle, gi, sample)

    driver.library.nvmlGpmMigSampleGet = hanging
    async with source(driver) as nvml_source:
        await read(nvml_source)
        hangs.set()
        await read(nvml_source)
        assert len(written) == 1
        driver.become(gpu("a", LARGE, gpm=True, architecture=9), gpu("b"))
        await read(nvml_source)
        assert not set(written) & set(buffers)
        gate.set()
        await settled(1)
        await read(nvml_source)
        assert set(written) <= set(buffers)


async def test_giving_back_that_hangs_costs_nothing(driver: Driver):
    """Buffers of a MIG device that is gone are left where they are; all GPUs are read on."""
    driver.become(gpu("a", SMALL, LARGE, gpm=True, architecture=9), gpu("b"))
    async with source(driver) as nvml_source:
        await read(nvml_source)
        driver.hang("nvmlGpmSampleFree")
        driver.become(gpu("a", LARGE, gpm=True, architecture=9), gpu("b"))
        for _ in range(3):
            found = await read(nvml_source)
            assert {name: one.up for name, one in found.items()} == {"GPU-a": True, "GPU-b": True}
        assert threads() == 2


async def test_a_driver_that_must_be_opened_anew_and_cannot_asks_for_a_restart(driver: Driver):
    """A call that hangs keeps it open; the reason is there no longer than that."""
    driver.become(gpu("a"), gpu("b"))
    async with source(driver) as nvml_source:
        await read(nvml_source)
        driver.hang("nvmlDeviceGetMemoryInfo_v2", device="GPU-a")
        await read(nvml_source)
        driver.fail("UNINITIALIZED", None)
        with pytest.raises(DriverError, match="restart the pod"):
            await read(nvml_source)
        assert "a call into the driver does not return" in (nvml_source.restart_reason or "")
        driver.recover()
        await settled(1)
        assert all(one.up for one in (await read(nvml_source)).values())
        assert nvml_source.restart_reason is None
