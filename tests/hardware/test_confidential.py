"""Confidential computing: its mode is read, and lists with hidden processes are not believed."""

from typing import Any

import pytest

from exporter.model import ConfidentialComputing, DriverInfo, Memory
from exporter.model.poll_result import CONFIDENTIAL_LISTS
from exporter.nvml.readings.gpu_processes import MODE_UNKNOWN, ListTrust
from exporter.nvml.sweep import Sweeper
from tests.hardware.making import GIB, MIB, NODE, SMALL, Clock, Driver, gpu, nvml, process, sweep
from tests.hardware.polled import Polled

STATE, SETTINGS = "nvmlSystemGetConfComputeState", "nvmlSystemGetConfComputeSettings"
READY = "nvmlSystemGetConfComputeGpusReadyState"
BUSY = {"host_processes": [process(41, "GPU-a")]}


def node(**mode: Any) -> dict[str, Any]:
    """Make a node in a mode of confidential computing."""
    return {"node": NODE | {"confidential": mode}}


def whole(**changes: Any) -> dict[str, Any]:
    """Make a GPU that is not in MIG mode."""
    return gpu("a", architecture=9, mig={"enabled": False}, **changes)


def mode(driver: Driver) -> ConfidentialComputing | None:
    """Sweep once; return the mode."""
    sweeper = Sweeper(nvml(driver.library))
    sweep(sweeper)
    assert not sweeper.calls.errors
    return sweeper.driver.confidential


def test_the_mode_is_read_from_the_settings():
    """They have the protection of links too, and readiness is a call of its own."""
    given = {
        "environment": "simulation",
        "developer_tools": True,
        "multi_gpu": "protected_pcie",
        "ready": False,
    }
    assert mode(Driver(whole(), **node(**given))) == ConfidentialComputing(enabled=True, **given)


def test_a_driver_without_settings_has_a_state():
    """It says all but the protection of links."""
    driver = Driver(whole(), missing=(SETTINGS,), **node(multi_gpu="protected_pcie"))
    expected = ConfidentialComputing(
        enabled=True, environment="production", developer_tools=False, ready=True
    )
    assert mode(driver) == expected


def test_a_machine_without_it_is_asked_once(clock: Clock):
    """Two refusals, and no call after them; none about readiness."""
    polled = Polled(clock, Driver(whole()))
    for _ in range(24):
        polled.poll()
    assert polled.sweeper.driver.confidential is None
    assert [polled.driver.asked(function) for function in (SETTINGS, STATE, READY)] == [1, 1, 0]


def test_one_that_is_switched_off_is_not_asked_for_readiness(clock: Clock):
    """Off is a mode that is known, in which processes are listed as ever."""
    polled = Polled(clock, Driver(whole(), **node(enabled=False), **BUSY))
    reading = polled.read()
    assert polled.sweeper.driver.confidential is not None
    assert (polled.sweeper.driver.confidential.enabled, polled.sweeper.driver.confidential.ready) == (
        False,
        None,
    )
    assert [each.pid for each in reading.processes or ()] == [41]
    assert polled.driver.asked(READY) == 0


def test_readiness_is_read_once_a_minute(clock: Clock):
    """It follows the attestation, while the mode stays."""
    driver = Driver(whole(), **node(ready=False))
    polled = Polled(clock, driver)
    for _ in range(24):
        polled.poll()
    assert (driver.asked(READY), driver.asked(SETTINGS)) == (2, 1)
    assert polled.sweeper.driver.confidential is not None
    assert polled.sweeper.driver.confidential.ready is False


def test_a_mode_that_cannot_be_read_costs_only_itself():
    """Versions and GPUs are read, but an empty list may be one that is hidden; the mode is asked again."""
    driver = Driver(whole(), **node())
    for function in (SETTINGS, STATE):
        driver.fail("UNKNOWN", function)
    sweeper = Sweeper(nvml(driver.library))
    reading = sweep(sweeper)["GPU-a"]
    assert (reading.up, reading.processes, reading.withheld["processes"]) == (True, None, MODE_UNKNOWN)
    assert sweeper.driver == DriverInfo(
        driver_version=NODE["driver_version"], nvml_version=NODE["nvml_version"], cuda_version="12.4"
    )
    driver.recover()
    sweep(sweeper)
    assert sweeper.driver.confidential is not None


def test_an_empty_list_is_unknown_where_processes_are_hidden():
    """Nobody is said to use nothing; the reason is not an error of the driver."""
    reading = sweep(Sweeper(nvml(Driver(whole(), **node(), **BUSY).library)))["GPU-a"]
    assert (reading.processes, reading.process_utilization) == (None, None)
    assert reading.withheld["processes"] == CONFIDENTIAL_LISTS
    assert "not supported" in CONFIDENTIAL_LISTS


def test_a_list_with_developer_tools_is_believed():
    """Also an empty one: the driver hides nothing then."""
    busy, idle = node(developer_tools=True) | BUSY, node(developer_tools=True)
    reading = sweep(Sweeper(nvml(Driver(whole(), **busy).library)))["GPU-a"]
    assert [each.pid for each in reading.processes or ()] == [41]
    assert sweep(Sweeper(nvml(Driver(whole(), **idle).library)))["GPU-a"].processes == ()


def test_a_list_that_has_processes_is_believed():
    """A driver that lists them does not hide them, whatever its mode."""
    driver = Driver(whole(), **node(enabled=False), **BUSY)
    sweeper = Sweeper(nvml(driver.library))
    sweep(sweeper)
    sweeper._gpus.trust = ListTrust(hidden=CONFIDENTIAL_LISTS)
    reading = sweep(sweeper)["GPU-a"]
    assert [each.pid for each in reading.processes or ()] == [41]
    assert reading.withheld.get("processes") is None


@pytest.mark.parametrize(("tools", "processes"), [(False, None), (True, ())])
def test_mig_devices_are_as_blind(tools: bool, processes: tuple[()] | None):
    """Each of them by its own list."""
    driver = Driver(gpu("a", SMALL, architecture=9), **node(developer_tools=tools))
    reading = sweep(Sweeper(nvml(driver.library)))["GPU-a"]
    assert reading.mig is not None
    assert [device.processes for device in reading.mig] == [processes]


def test_protected_memory():
    """It is that of the GPU that has some."""
    driver = Driver(whole(protected_memory="15 GiB"), **node(), **BUSY)
    reading = sweep(Sweeper(nvml(driver.library)))["GPU-a"]
    used = 1 * GIB + 100 * MIB
    assert reading.protected_memory == Memory(total=15 * GIB, used=used, free=15 * GIB - used)
