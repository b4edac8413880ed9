"""Sweeps over a node on which something goes wrong: what it costs, and how it ends."""

from typing import Any

import pytest

from exporter.nvml import NvmlSource
from exporter.nvml.driver.library import DriverError
from exporter.nvml.readings.device import ENERGY_ROWS, ROWS
from tests.core.hardware import tiny
from tests.core.hardware.making import Clock, Driver, nvml
from tests.core.hardware.polled import Polled

INIT = "nvmlInitWithFlags"
SERIAL = "nvmlDeviceGetSerial"
POWER = "nvmlDeviceGetPowerUsage"
READINGS = (
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetFieldValues",
    *sorted({name for row in (*ROWS, *ENERGY_ROWS) for name, _ in row.calls}),
)


def refused(driver: Driver) -> str:
    """Sweep in vain; return the reason."""
    with pytest.raises(DriverError) as caught:
        driver.sweep()
    return caught.value.reason


def test_an_implausible_gpu_count_is_an_error(two: Driver):
    two.library.nvmlDeviceGetCount_v2 = tiny.writes(2**32 - 1)
    assert refused(two) == "NoCount"


def test_a_call_without_permission_costs_its_reading(two: Driver):
    """It is counted and repeated in every sweep, since rights may be granted later."""
    two.fail("NO_PERMISSION", POWER, "GPU-a")
    for count in (1, 2):
        readings = two.sweep()
        assert readings["GPU-a"].up
        assert readings["GPU-a"].power_milliwatts is None
        assert readings["GPU-a"].memory is not None
        assert readings["GPU-b"].power_milliwatts == 20_000
        assert two.errors() == {("GPU-a", POWER, "NoPermission"): count}
    two.recover()
    assert two.sweep()["GPU-a"].power_milliwatts == 20_000


def test_a_gpu_that_supports_no_reading_is_up(two: Driver):
    for function in READINGS:
        two.fail("NOT_SUPPORTED", function, "GPU-a")
    for _ in range(2):
        reading = two.sweep()["GPU-a"]
        assert (reading.up, reading.memory, len(reading.processes)) == (True, None, 1)


@pytest.mark.parametrize("functions", [READINGS, (None,)])
def test_a_gpu_of_which_every_reading_fails_is_down(two: Driver, functions: tuple[str | None, ...]):
    two.sweep()
    for function in functions:
        two.fail("RESET_REQUIRED", function, "GPU-a")
    assert two.ups() == {"GPU-b": True, "GPU-a": False}


@pytest.mark.parametrize("function", ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID"])
def test_a_gpu_that_cannot_be_found_hides_no_other_and_is_found_later(two: Driver, function: str):
    two.fail("NOT_SUPPORTED", function, "GPU-a")
    assert list(two.sweep()) == ["GPU-b"]
    assert list(two.sweep()) == ["GPU-b"]
    two.recover()
    assert list(two.sweep()) == ["GPU-a", "GPU-b"]


def test_a_driver_that_is_loaded_later_is_found(two: Driver):
    two.fail("DRIVER_NOT_LOADED", INIT)
    with pytest.raises(DriverError, match="kernel module is not loaded") as caught:
        two.sweep()
    assert caught.value.reason == "DriverNotLoaded"
    assert refused(two) == "DriverNotLoaded"
    two.recover()
    assert two.ups() == {"GPU-a": True, "GPU-b": True}


@pytest.mark.parametrize("function", [POWER, "nvmlDeviceGetCount_v2", "nvmlDeviceGetUUID"])
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("UNINITIALIZED", "Uninitialized"),
        ("DRIVER_NOT_LOADED", "DriverNotLoaded"),
        ("LIB_RM_VERSION_MISMATCH", "LibRmVersionMismatch"),
    ],
)
def test_a_driver_that_is_unloaded_is_reopened_in_the_next_sweep(
    two: Driver, function: str, code: str, reason: str
):
    two.sweep()
    two.fail(code, function)
    assert refused(two) == reason
    assert two.library.opened == 0
    two.recover()
    assert two.ups() == {"GPU-a": True, "GPU-b": True}
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
def test_errors_of_node_calls_fail_the_sweep(two: Driver, function: str, code: str, reason: str):
    two.fail(code, function)
    assert refused(two) == reason
    two.recover()
    assert two.ups() == {"GPU-a": True, "GPU-b": True}


def test_an_unreadable_driver_version_costs_the_version_alone(two: Driver):
    two.fail("UNKNOWN", "nvmlSystemGetDriverVersion")
    assert two.ups() == {"GPU-a": True, "GPU-b": True}
    assert (two.sweeper.driver.driver_version, two.sweeper.driver.cuda_version) == (None, "12.4")


def test_versions_are_asked_for_until_they_are_known(two: Driver):
    two.fail("UNKNOWN", "nvmlSystemGetDriverVersion")
    for asked in (1, 2):
        two.sweep()
        assert two.asked("nvmlSystemGetDriverVersion") == asked
    two.recover()
    for _ in range(2):
        two.sweep()
        assert two.sweeper.driver.driver_version == "550.90.07"
    assert two.asked("nvmlSystemGetDriverVersion") == 3


def test_facts_of_a_gpu_are_asked_for_once_a_minute_until_they_are_known_or_unsupported(
    clock: Clock, two: Driver
):
    polled = Polled(clock, two)
    two.fail("UNKNOWN", SERIAL, "GPU-a")
    two.fail("NOT_SUPPORTED", SERIAL, "GPU-b")
    for _ in range(20):
        reading = polled.poll()["GPU-a"]
        assert reading.identity.serial is None
        assert reading.withheld["core"] == "Unknown"
    assert two.asked(SERIAL, "GPU-a") == 2 + 1
    two.recover()
    serials = [polled.poll()["GPU-a"].identity.serial for _ in range(20)]
    assert serials[0] is None
    assert serials[-1]
    assert two.asked(SERIAL, "GPU-a") == 3 + 1
    assert two.asked(SERIAL, "GPU-b") == 1


def test_an_unexpected_exception_costs_one_gpu(two: Driver):
    """It is counted by its name."""
    real = two.library.nvmlDeviceGetPciInfo_v3
    strange = {"GPU-a"}

    def pci(*arguments: Any) -> int:
        if two.library.board.by_address[tiny.address(arguments[0])].spec.uuid in strange:
            raise ZeroDivisionError
        return real(*arguments)

    two.library.nvmlDeviceGetPciInfo_v3 = pci
    assert two.ups() == {"GPU-a": False, "GPU-b": True}
    assert two.errors() == {("GPU-a", "read", "ZeroDivisionError"): 1}
    strange.clear()
    assert two.ups() == {"GPU-a": True, "GPU-b": True}


def test_invalid_utf8_in_a_bus_address_is_replaced(two: Driver):
    def bus(_handle: Any, reference: Any) -> int:
        reference._obj.busId = b"0000\xff:07"
        return 0

    two.library.nvmlDeviceGetPciInfo_v3 = bus
    assert two.sweep()["GPU-a"].identity.pci_bus_id == "0000\N{REPLACEMENT CHARACTER}:07"
    assert not two.errors()


def test_failed_sweeps_are_numbered_too(two: Driver):
    """So a gap between two readings is visible."""
    assert {reading.sweep for reading in two.sweep().values()} == {1}
    two.fail("UNKNOWN", "nvmlDeviceGetCount_v2")
    assert refused(two) == "NoCount"
    two.recover()
    assert {reading.sweep for reading in two.sweep().values()} == {3}
    two.fail("GPU_IS_LOST", POWER, "GPU-a")
    two.sweep()
    two.recover()
    assert two.sweep()["GPU-a"].sweep == 5


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
    source = NvmlSource(nvml(library=two.library))
    assert await attempt(source) is None
    two.fail(code, POWER)
    reason = await attempt(source)
    assert reason is None if said is None else said in reason
    two.recover()
    assert await attempt(source) is None
    await source.close()


@pytest.mark.parametrize("function", [None, POWER])
async def test_unknown_errors_of_every_gpu_need_a_restart(two: Driver, function: str | None):
    """The device nodes of the container were revoked."""
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
    source = NvmlSource(nvml(library=two.library))
    two.fail("UNKNOWN", POWER)
    assert await attempt(source) is None
    await source.close()
