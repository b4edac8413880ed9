"""MIG on a GPU whose layout cannot be read: the last known one stays, marked as incomplete."""

import pytest

from exporter.model import GpuReading
from tests.core.hardware import tiny
from tests.core.hardware.making import LARGE, SMALL, Driver, gpu, instance, process, refuse

MODE = "nvmlDeviceGetMigMode"
SLOTS = "nvmlDeviceGetMaxMigDeviceCount"
SLOT_CALLS = (
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetComputeInstanceId",
)


def layout(reading: GpuReading) -> tuple[bool | None, int | None, list[str] | None, bool]:
    """Return mode, slots, MIG devices, and whether those are all."""
    uuids = None if reading.mig is None else [device.uuid for device in reading.mig]
    return reading.mig_enabled, reading.mig_slices, uuids, reading.mig_complete


def test_no_mig_devices_and_unknown_mig_devices_differ():
    driver = Driver(gpu("a", mig={"enabled": True}))
    assert layout(driver.read()) == (True, 7, [], True)
    driver.configure()
    driver.fail("UNKNOWN", SLOTS)
    for _ in range(2):
        assert layout(driver.read()) == (True, None, None, False)
    driver.recover()
    assert layout(driver.read()) == (True, 7, [], True)


def test_an_unread_mig_mode_is_unknown():
    driver = Driver(gpu("a", SMALL))
    driver.fail("UNKNOWN", MODE)
    for _ in range(2):
        assert layout(driver.read()) == (None, None, None, False)
    driver.recover()
    assert layout(driver.read()) == (True, 7, ["MIG-small"], True)


@pytest.mark.parametrize("function", [MODE, SLOTS])
def test_an_unreadable_layout_is_that_of_the_last_sweep_without_values(function: str):
    driver = Driver(gpu("a", SMALL, LARGE), host_processes=[process(41, "MIG-small")])
    driver.read()
    driver.fail("UNKNOWN", function)
    for _ in range(2):
        reading = driver.read()
        assert layout(reading) == (True, 7, ["MIG-large", "MIG-small"], False)
        assert [(device.memory, device.processes) for device in reading.mig] == [(None, None)] * 2
        assert (reading.processes, reading.process_utilization) == (None, None)
        assert (reading.up, reading.power_milliwatts is not None) == (True, True)
    driver.recover()
    reading = driver.read()
    assert layout(reading) == (True, 7, ["MIG-large", "MIG-small"], True)
    assert all(device.memory is not None for device in reading.mig)
    assert driver.asked("nvmlDeviceGetAttributes_v2", "MIG-small") == 1
    assert driver.asked("nvmlDeviceGetUtilizationRates", "GPU-a") == 1


def test_an_unreadable_mode_makes_a_whole_gpu_unknown():
    """It may have been partitioned since."""
    driver = Driver(gpu("a", mig={"enabled": False}), host_processes=[process(41, "GPU-a")])
    assert layout(driver.read()) == (False, None, [], True)
    driver.fail("UNKNOWN", MODE)
    assert layout(driver.read()) == (None, None, None, False)


@pytest.mark.parametrize("function", SLOT_CALLS)
@pytest.mark.parametrize("code", [3, 4, 999])
def test_an_unreadable_slot_hides_no_other_device(function: str, code: int):
    """A slot call that is not supported at all means an empty slot."""
    driver = Driver(gpu("a", SMALL, LARGE))
    failing = {"MIG-large"}
    refuse(driver, function, code, failing)
    for _ in range(2):
        empty = code == 3 and function == "nvmlDeviceGetMigDeviceHandleByIndex"
        assert layout(driver.read()) == (True, 7, ["MIG-small"], empty)
    failing.clear()
    assert layout(driver.read()) == (True, 7, ["MIG-large", "MIG-small"], True)


@pytest.mark.parametrize("code", [4, 999])
def test_a_device_without_a_profile_name_is_complete(code: int):
    driver = Driver(gpu("a", SMALL, LARGE))
    failing = {"MIG-large"}
    refuse(driver, "nvmlDeviceGetName", code, failing)
    reading = driver.read()
    assert layout(reading) == (True, 7, ["MIG-large", "MIG-small"], True)
    assert [device.profile for device in reading.mig or ()] == [None, "1g.2gb"]
    failing.clear()
    assert [device.profile for device in driver.read().mig or ()] == ["3g.8gb", "1g.2gb"]


def test_an_implausible_number_of_slots_is_unknown():
    driver = Driver(gpu("a", SMALL))
    driver.library.nvmlDeviceGetMaxMigDeviceCount = tiny.writes(2**32 - 1)
    assert layout(driver.read()) == (True, None, None, False)


@pytest.mark.parametrize("function", SLOT_CALLS)
@pytest.mark.parametrize("code", [4, 999])
def test_a_device_that_becomes_unreadable_stays_without_values(function: str, code: int):
    driver = Driver(gpu("a", SMALL, LARGE), host_processes=[process(41, "MIG-small")])
    failing: set[str] = set()
    refuse(driver, function, code, failing)
    before = driver.read()
    failing.add("MIG-large")
    for _ in range(2):
        reading = driver.read()
        assert layout(reading) == (True, 7, ["MIG-large", "MIG-small"], False)
        large, small = reading.mig
        assert (large.memory, large.processes, large.profile) == (None, None, "3g.8gb")
        assert small == before.mig[1]
    failing.clear()
    assert driver.read().mig == before.mig
    assert driver.asked("nvmlDeviceGetAttributes_v2", "MIG-large") == 1


def test_a_new_device_in_a_known_place_replaces_the_old_one():
    """While another slot fails."""
    driver = Driver(gpu("a", SMALL, LARGE))
    failing: set[str] = set()
    refuse(driver, SLOT_CALLS[0], 999, failing)
    driver.read()
    failing.add("MIG-small")
    driver.become(gpu("a", SMALL, LARGE | {"uuid": "MIG-other"}))
    assert layout(driver.read()) == (True, 7, ["MIG-other", "MIG-small"], False)


def test_only_the_last_device_of_a_failing_slot_is_kept():
    sick = instance("sick", 6, start=6)
    driver = Driver(gpu("a", sick, instance("job-0", 1, start=0)))
    failing: set[str] = set()
    refuse(driver, SLOT_CALLS[1], 999, failing)
    driver.read()
    failing.add("MIG-sick")
    for number in range(1, 8):
        job = instance(f"job-{number}", 7 + number, start=number % 6)
        driver.become(gpu("a", sick, job))
        reading = driver.read()
        assert {device.uuid for device in reading.mig} == {"MIG-sick", f"MIG-job-{number}"}
        assert [device.uuid for device in reading.mig if device.memory is None] == ["MIG-sick"]
        assert driver.sweeper.calls.records.parents == dict.fromkeys(
            {"MIG-sick", f"MIG-job-{number}"}, "GPU-a"
        )
    driver.become(gpu("a", sick))
    assert layout(driver.read()) == (True, 7, ["MIG-sick"], False)
    failing.clear()
    driver.become(gpu("a", mig={"enabled": True}))
    assert layout(driver.read()) == (True, 7, [], True)


def test_a_device_beside_an_unreadable_one_still_shares_its_memory():
    halves = [LARGE | {"uuid": f"MIG-{ci}", "ci": ci, "profile": "1c.3g.8gb"} for ci in (0, 1)]
    driver = Driver(gpu("a", *halves, SMALL))
    failing: set[str] = set()
    refuse(driver, SLOT_CALLS[1], 999, failing)
    driver.read()
    failing.add("MIG-1")
    shared = {device.uuid: device.memory_shared for device in driver.read().mig}
    assert shared == {"MIG-0": True, "MIG-1": True, "MIG-small": False}


def test_disabling_mig_removes_the_devices():
    driver = Driver(gpu("a", SMALL))
    driver.read()
    driver.become(gpu("a", mig={"enabled": False}))
    assert layout(driver.read()) == (False, None, [], True)


def test_errors_of_mig_devices_are_counted_for_their_gpu():
    driver = Driver(gpu("a", SMALL), gpu("b", LARGE))
    for name in ("MIG-small", "MIG-large"):
        driver.fail("UNKNOWN", "nvmlDeviceGetAttributes_v2", name)
    driver.sweep()
    assert {device for device, _, _ in driver.errors()} == {"GPU-a", "GPU-b"}
    assert driver.sweeper.calls.records.parents == {"MIG-small": "GPU-a", "MIG-large": "GPU-b"}
    driver.become(gpu("a"), gpu("b", LARGE))
    driver.sweep()
    assert driver.sweeper.calls.records.parents == {"MIG-large": "GPU-b"}
    assert driver.sweeper.calls.records.failures == 3
