"""Sweeps over a node on which something goes wrong: what it costs, and how it ends."""

from typing import Any

import pytest

from exporter.nvml import NvmlSource
from exporter.nvml.driver.library import DriverError
from exporter.nvml.readings.device import ENERGY_ROWS, ROWS
from exporter.nvml.sweep import Sweeper
from tests.hardware import tiny
from tests.hardware.making import Driver, nvml, sweep, ups

INIT = "nvmlInitWithFlags"
SERIAL = "nvmlDeviceGetSerial"
POWER = "nvmlDeviceGetPowerUsage"
READINGS = (
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetFieldValues",
    *sorted({name for row in (*ROWS, *ENERGY_ROWS) for name, _ in row.calls}),
)


def refused(sweeper: Sweeper) -> str:
    """Sweep in vain; return the reason."""
    with pytest.raises(DriverError) as caught:
        sweep(sweeper)
    return caught.value.reason


def test_a_count_that_cannot_be_is_none(two: Driver):
    """Nobody looks for four billion GPUs."""
    two.library.nvmlDeviceGetCount_v2 = tiny.writes(2**32 - 1)
    assert refused(Sweeper(nvml(two.library))) == "NoCount"


def test_a_call_without_permission_costs_its_reading_alone(two: Driver):
    """It is counted at every sweep, and asked again, since rights may be given later."""
    two.fail("NO_PERMISSION", POWER, "GPU-a")
    sweeper = Sweeper(nvml(two.library))
    for count in (1, 2):
        readings = sweep(sweeper)
        assert readings["GPU-a"].up
        assert readings["GPU-a"].power_milliwatts is None
        assert readings["GPU-a"].memory is not None
        assert readings["GPU-b"].power_milliwatts == 20_000
        assert sweeper.calls.errors == {("GPU-a", POWER, "NoPermission"): count}
    two.recover()
    assert sweep(sweeper)["GPU-a"].power_milliwatts == 20_000


def test_a_gpu_that_supports_no_reading_is_up(two: Driver):
    """It has answered every question, if only by that; a board with a driver of few functions is not lost."""
    for function in READINGS:
        two.fail("NOT_SUPPORTED", function, "GPU-a")
    sweeper = Sweeper(nvml(two.library))
    for _ in range(2):
        reading = sweep(sweeper)["GPU-a"]
        assert (reading.up, reading.memory, len(reading.processes)) == (True, None, 1)


@pytest.mark.parametrize("functions", [READINGS, (None,)])
def test_a_gpu_of_which_nothing_can_be_read_is_down(two: Driver, functions: tuple[str | None, ...]):
    """When every reading of a GPU fails it is down, whether or not it still says who it is."""
    sweeper = Sweeper(nvml(two.library))
    sweep(sweeper)
    for function in functions:
        two.fail("RESET_REQUIRED", function, "GPU-a")
    assert ups(sweeper) == {"GPU-b": True, "GPU-a": False}


@pytest.mark.parametrize("function", ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID"])
def test_a_gpu_that_may_not_be_found_does_not_hide_the_others(two: Driver, function: str):
    """What one place of the enumeration does not support says nothing of the next, nor of the next sweep."""
    two.fail("NOT_SUPPORTED", function, "GPU-a")
    sweeper = Sweeper(nvml(two.library))
    assert list(sweep(sweeper)) == ["GPU-b"]
    assert list(sweep(sweeper)) == ["GPU-b"]
    two.recover()
    assert list(sweep(sweeper)) == ["GPU-a", "GPU-b"]


def test_a_driver_that_is_loaded_later_is_found_without_a_restart(two: Driver):
    """Until then each sweep says what is missing and what to do."""
    two.fail("DRIVER_NOT_LOADED", INIT)
    sweeper = Sweeper(nvml(two.library))
    with pytest.raises(DriverError, match="kernel module is not loaded") as caught:
        sweep(sweeper)
    assert caught.value.reason == "DriverNotLoaded"
    assert refused(sweeper) == "DriverNotLoaded"
    two.recover()
    assert ups(sweeper) == {"GPU-a": True, "GPU-b": True}


@pytest.mark.parametrize("function", [POWER, "nvmlDeviceGetCount_v2", "nvmlDeviceGetUUID"])
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("UNINITIALIZED", "Uninitialized"),
        ("DRIVER_NOT_LOADED", "DriverNotLoaded"),
        ("LIB_RM_VERSION_MISMATCH", "LibRmVersionMismatch"),
    ],
)
def test_a_driver_that_goes_while_we_run_is_opened_anew(two: Driver, function: str, code: str, reason: str):
    """The sweep fails with the error's name, the driver is shut, and the next sweep opens it."""
    sweeper = Sweeper(nvml(two.library))
    sweep(sweeper)
    two.fail(code, function)
    assert refused(sweeper) == reason
    assert two.library.opened == 0
    two.recover()
    assert ups(sweeper) == {"GPU-a": True, "GPU-b": True}
    assert two.library.opened == 1


@pytest.mark.parametrize(
    ("function", "code", "reason"),
    [
        ("nvmlSystemGetDriverVersion", "UNINITIALIZED", "Uninitialized"),
        ("nvmlSystemGetDriverVersion", "GPU_IS_LOST", "GpuIsLost"),
        ("nvmlDeviceGetCount_v2", "GPU_IS_LOST", "GpuIsLost"),
        ("nvmlDeviceGetCount_v2", "UNKNOWN", "NoCount"),
    ],
)
def test_errors_of_calls_about_no_device_are_the_driver_s(two: Driver, function: str, code: str, reason: str):
    """Whatever a call about the node answers, the sweep fails as the driver's failure, and recovers."""
    two.fail(code, function)
    sweeper = Sweeper(nvml(two.library))
    assert refused(sweeper) == reason
    two.recover()
    assert ups(sweeper) == {"GPU-a": True, "GPU-b": True}


def test_a_driver_that_hides_its_version_is_read_all_the_same(two: Driver):
    """An error that is not the driver's end costs the version alone."""
    two.fail("UNKNOWN", "nvmlSystemGetDriverVersion")
    sweeper = Sweeper(nvml(two.library))
    assert ups(sweeper) == {"GPU-a": True, "GPU-b": True}
    assert (sweeper.driver.driver_version, sweeper.driver.cuda_version) == (None, "12.4")


def test_versions_are_asked_until_they_are_told(two: Driver):
    """A version that failed at first is told later, and asked no more."""
    two.fail("UNKNOWN", "nvmlSystemGetDriverVersion")
    sweeper = Sweeper(nvml(two.library))
    for asked in (1, 2):
        sweep(sweeper)
        assert two.asked("nvmlSystemGetDriverVersion") == asked
    two.recover()
    for _ in range(2):
        sweep(sweeper)
        assert sweeper.driver.driver_version == "550.90.07"
    assert two.asked("nvmlSystemGetDriverVersion") == 3


def test_facts_of_a_gpu_are_asked_until_they_are_told(two: Driver):
    """A serial that failed is asked again; one that the board does not have is not."""
    two.fail("UNKNOWN", SERIAL, "GPU-a")
    two.fail("NOT_SUPPORTED", SERIAL, "GPU-b")
    sweeper = Sweeper(nvml(two.library))
    for asked in (1, 2):
        assert sweep(sweeper)["GPU-a"].identity.serial is None
        assert two.asked(SERIAL, "GPU-a") == asked
    two.recover()
    for _ in range(2):
        assert sweep(sweeper)["GPU-a"].identity.serial
    assert two.asked(SERIAL, "GPU-a") == 3
    assert two.asked(SERIAL, "GPU-b") == 1


def test_whatever_a_gpu_makes_us_raise_costs_that_gpu_alone(two: Driver):
    """An answer that nobody thought of is counted by the exception's name, and the next GPU is read."""
    real = two.library.nvmlDeviceGetPciInfo_v3
    strange = {"GPU-a"}

    def pci(*arguments: Any) -> int:
        if two.library.board.by_address[tiny.address(arguments[0])].spec.uuid in strange:
            raise ZeroDivisionError
        return real(*arguments)

    two.library.nvmlDeviceGetPciInfo_v3 = pci
    sweeper = Sweeper(nvml(two.library))
    assert ups(sweeper) == {"GPU-a": False, "GPU-b": True}
    assert sweeper.calls.errors == {("GPU-a", "read", "ZeroDivisionError"): 1}
    strange.clear()
    assert ups(sweeper) == {"GPU-a": True, "GPU-b": True}


def test_a_bus_address_that_is_no_text_is_readable_in_part(two: Driver):
    """Bytes that are no UTF-8 are replaced, and nothing fails."""

    def bus(_handle: Any, reference: Any) -> int:
        reference._obj.busId = b"0000\xff:07"
        return 0

    two.library.nvmlDeviceGetPciInfo_v3 = bus
    sweeper = Sweeper(nvml(two.library))
    assert sweep(sweeper)["GPU-a"].identity.pci_bus_id == "0000\N{REPLACEMENT CHARACTER}:07"
    assert not sweeper.calls.errors


def test_sweeps_are_numbered_whether_they_succeed_or_not(two: Driver):
    """A number that is left out is a sweep that a GPU was not read in."""
    sweeper = Sweeper(nvml(two.library))
    assert {reading.sweep for reading in sweep(sweeper).values()} == {1}
    two.fail("UNKNOWN", "nvmlDeviceGetCount_v2")
    assert refused(sweeper) == "NoCount"
    two.recover()
    assert {reading.sweep for reading in sweep(sweeper).values()} == {3}
    two.fail("GPU_IS_LOST", POWER, "GPU-a")
    sweep(sweeper)
    two.recover()
    assert sweep(sweeper)["GPU-a"].sweep == 5


async def attempt(source: NvmlSource) -> str | None:
    """Sweep, whether it works or not; return why only a restart would help."""
    try:
        await source.read()
    except DriverError:
        return source.restart_reason
    return source.restart_reason


@pytest.mark.parametrize(
    ("code", "said"),
    [("UNINITIALIZED", None), ("DRIVER_NOT_LOADED", None), ("LIB_RM_VERSION_MISMATCH", "upgraded")],
)
async def test_an_upgraded_driver_needs_a_restart(two: Driver, code: str, said: str | None):
    """A library that no longer fits the driver stays in this process; the other errors heal by themselves."""
    source = NvmlSource(nvml(library=two.library))
    assert await attempt(source) is None
    two.fail(code, POWER)
    reason = await attempt(source)
    assert reason is None if said is None else said in reason
    two.recover()
    assert await attempt(source) is None
    await source.close()


@pytest.mark.parametrize("function", [None, POWER])
async def test_revoked_device_nodes_need_a_restart(two: Driver, function: str | None):
    """That is so when every GPU answers 'unknown error', whether or not the node's own calls do."""
    source = NvmlSource(nvml(library=two.library))
    assert await attempt(source) is None
    two.fail("UNKNOWN", None, "GPU-a")
    assert await attempt(source) is None
    two.fail("UNKNOWN", None, "GPU-b" if function else None)
    assert "restart the pod" in await attempt(source)
    two.recover()
    assert await attempt(source) is None
    await source.close()


async def test_one_unknown_error_needs_no_restart(two: Driver):
    """A call that fails with 'unknown error' while others answer is that call's trouble."""
    source = NvmlSource(nvml(library=two.library))
    two.fail("UNKNOWN", POWER)
    assert await attempt(source) is None
    await source.close()
