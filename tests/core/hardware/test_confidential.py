"""Confidential computing: its mode is read, and lists with hidden processes are not believed."""

from typing import Any

import pytest

from exporter.model import ConfidentialComputing, DriverInfo, Memory
from exporter.model.poll_result import CONFIDENTIAL_LISTS
from exporter.nvml.readings.gpu_processes import MODE_UNKNOWN, ListTrust
from tests.core.hardware.making import GIB, MIB, NODE, SMALL, Clock, Driver, gpu, process
from tests.core.hardware.polled import Polled

STATE, SETTINGS = "nvmlSystemGetConfComputeState", "nvmlSystemGetConfComputeSettings"
READY = "nvmlSystemGetConfComputeGpusReadyState"
BUSY = {"host_processes": [process(41, "GPU-a")]}


def node(**mode: Any) -> dict[str, Any]:
    """Return a node in a mode of confidential computing."""
    return {"node": NODE | {"confidential": mode}}


def whole(**changes: Any) -> dict[str, Any]:
    """Return a GPU that is not in MIG mode."""
    return gpu("a", architecture=9, mig={"enabled": False}, **changes)


def mode(driver: Driver) -> ConfidentialComputing | None:
    """Sweep once; return the mode."""
    driver.sweep()
    assert not driver.errors()
    return driver.sweeper.driver.confidential


def test_the_mode_comes_from_the_settings():
    given = {
        "environment": "simulation",
        "developer_tools": True,
        "multi_gpu": "protected_pcie",
        "ready": False,
    }
    assert mode(Driver(whole(), **node(**given))) == ConfidentialComputing(enabled=True, **given)


def test_a_driver_without_the_settings_call_has_a_state():
    """It lacks the protection of links only."""
    driver = Driver(whole(), missing=(SETTINGS,), **node(multi_gpu="protected_pcie"))
    expected = ConfidentialComputing(
        enabled=True, environment="production", developer_tools=False, ready=True
    )
    assert mode(driver) == expected


def test_a_machine_without_confidential_computing_is_asked_once(clock: Clock):
    polled = Polled(clock, Driver(whole()))
    for _ in range(24):
        polled.poll()
    assert polled.sweeper.driver.confidential is None
    assert [polled.driver.asked(function) for function in (SETTINGS, STATE, READY)] == [1, 1, 0]


def test_a_disabled_mode_is_known_and_not_asked_for_readiness(clock: Clock):
    polled = Polled(clock, Driver(whole(), **node(enabled=False), **BUSY))
    reading = polled.read()
    assert polled.sweeper.driver.confidential is not None
    assert (polled.sweeper.driver.confidential.enabled, polled.sweeper.driver.confidential.ready) == (
        False,
        None,
    )
    assert [process.pid for process in reading.processes or ()] == [41]
    assert polled.driver.asked(READY) == 0


def test_readiness_is_read_once_a_minute(clock: Clock):
    driver = Driver(whole(), **node(ready=False))
    polled = Polled(clock, driver)
    for _ in range(24):
        polled.poll()
    assert (driver.asked(READY), driver.asked(SETTINGS)) == (2, 1)
    assert polled.sweeper.driver.confidential is not None
    assert polled.sweeper.driver.confidential.ready is False


def test_an_unknown_mode_makes_an_empty_process_list_unknown():
    """Everything else is read, and the mode is asked again."""
    driver = Driver(whole(), **node())
    for function in (SETTINGS, STATE):
        driver.fail("UNKNOWN", function)
    reading = driver.sweep()["GPU-a"]
    assert (reading.up, reading.processes, reading.withheld["processes"]) == (True, None, MODE_UNKNOWN)
    assert driver.sweeper.driver == DriverInfo(
        driver_version=NODE["driver_version"], nvml_version=NODE["nvml_version"], cuda_version="12.4"
    )
    driver.recover()
    driver.sweep()
    assert driver.sweeper.driver.confidential is not None


def test_an_empty_process_list_is_unknown_where_processes_are_hidden():
    reading = Driver(whole(), **node(), **BUSY).sweep()["GPU-a"]
    assert (reading.processes, reading.process_utilization) == (None, None)
    assert reading.withheld["processes"] == CONFIDENTIAL_LISTS
    assert "not supported" in CONFIDENTIAL_LISTS


def test_with_developer_tools_process_lists_are_complete():
    busy, idle = node(developer_tools=True) | BUSY, node(developer_tools=True)
    reading = Driver(whole(), **busy).sweep()["GPU-a"]
    assert [process.pid for process in reading.processes or ()] == [41]
    assert Driver(whole(), **idle).sweep()["GPU-a"].processes == ()


def test_a_list_with_processes_is_used_whatever_the_mode():
    driver = Driver(whole(), **node(enabled=False), **BUSY)
    driver.sweep()
    driver.sweeper._gpus.trust = ListTrust(hidden=CONFIDENTIAL_LISTS)
    reading = driver.sweep()["GPU-a"]
    assert [process.pid for process in reading.processes or ()] == [41]
    assert reading.withheld.get("processes") is None


@pytest.mark.parametrize(("tools", "processes"), [(False, None), (True, ())])
def test_process_lists_of_mig_devices_follow_the_same_rule(tools: bool, processes: tuple[()] | None):
    driver = Driver(gpu("a", SMALL, architecture=9), **node(developer_tools=tools))
    reading = driver.sweep()["GPU-a"]
    assert reading.mig is not None
    assert [device.processes for device in reading.mig] == [processes]


def test_protected_memory():
    driver = Driver(whole(protected_memory="15 GiB"), **node(), **BUSY)
    reading = driver.sweep()["GPU-a"]
    used = 1 * GIB + 100 * MIB
    assert reading.protected_memory == Memory(total=15 * GIB, used=used, free=15 * GIB - used)
