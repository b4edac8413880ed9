"""Sweeps over a node on which a GPU is lost: what is still reported, and how it comes back."""

from typing import Any

import pytest

from exporter.model import GpuReading
from exporter.nvml.driver.library import DriverError
from exporter.nvml.sweep import LONGEST_REOPEN_SECONDS, REOPEN_AFTER_SECONDS
from tests.core.hardware.making import LARGE, SMALL, Clock, Driver, gpu, instance, process

INIT = "nvmlInitWithFlags"
POWER = "nvmlDeviceGetPowerUsage"
FIND = "nvmlDeviceGetHandleByIndex_v2"
MIGS = ["MIG-large", "MIG-small"]


def only_known(before: GpuReading, gone: GpuReading) -> GpuReading:
    """Return the reading of a lost GPU, with the times of ``gone``."""
    return GpuReading(
        identity=before.identity,
        up=False,
        compute_mode=before.compute_mode,
        mig_enabled=before.mig_enabled,
        mig_slices=before.mig_slices,
        mig=before.mig,
        read_at=gone.read_at,
        read_monotonic=gone.read_monotonic,
    )


def opened(driver: Driver, clock: Clock, seconds: float, sweeps: int) -> list[int]:
    """Sweep ``sweeps`` times, ``seconds`` apart; return how often the driver was opened until each sweep."""
    counts = []
    for _ in range(sweeps):
        driver.sweep()
        counts.append(driver.asked(INIT))
        clock.now += seconds
    return counts


@pytest.mark.parametrize(
    "function",
    [
        FIND,
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetMemoryInfo_v2",
        POWER,
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetProcessUtilization",
        None,
    ],
)
@pytest.mark.parametrize("code", ["GPU_IS_LOST", "GPU_NOT_FOUND"])
def test_a_lost_gpu_keeps_only_its_known_facts_and_affects_no_other(
    two: Driver, function: str | None, code: str
):
    """Wherever in its sweep it is lost."""
    before = two.sweep()
    two.fail(code, function, "GPU-a")
    after = two.sweep()
    assert after["GPU-a"] == only_known(before["GPU-a"], after["GPU-a"])
    assert after["GPU-b"].up
    assert [process.pid for process in after["GPU-b"].processes] == [42]
    assert two.sweeper.gpu_count == 2
    assert two.sweeper.calls.records.failures == 1


@pytest.mark.parametrize("gone", ["lost", "lost among its devices", "vanished"])
def test_a_gone_gpu_keeps_its_mig_devices_without_values(gone: str):
    a, b = gpu("a", SMALL, LARGE), gpu("b")
    driver = Driver(a, b, host_processes=[process(41, "MIG-small")])
    before = driver.sweep()["GPU-a"]
    if gone == "vanished":
        driver.become(b)
    else:
        function = "nvmlDeviceGetMemoryInfo_v2" if "among" in gone else None
        driver.fail("GPU_IS_LOST", function, "MIG-small" if function else "GPU-a")
    for _ in range(2):
        reading = driver.sweep()["GPU-a"]
        assert (reading.up, reading.mig_enabled, reading.mig_slices) == (False, True, 7)
        assert [device.uuid for device in reading.mig] == MIGS
        assert [(device.memory, device.processes) for device in reading.mig] == [(None, None)] * 2
        assert [device.profile for device in reading.mig] == [device.profile for device in before.mig]
    driver.recover()
    driver.become(a, b)
    back = driver.sweep()["GPU-a"]
    assert back.up
    assert all(device.memory is not None for device in back.mig)


@pytest.mark.parametrize("function", ["nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetName", POWER])
def test_a_gpu_lost_in_the_first_sweep_is_down_not_absent(two: Driver, function: str):
    two.fail("GPU_IS_LOST", function, "GPU-a")
    assert two.ups() == {"GPU-b": True, "GPU-a": False}


def test_facts_missed_while_lost_are_read_later(two: Driver):
    two.fail("GPU_IS_LOST", "nvmlDeviceGetName", "GPU-a")
    assert not two.sweep()["GPU-a"].identity.model
    two.recover()
    assert two.sweep()["GPU-a"].identity.model == "NVIDIA Test"


def test_a_gpu_that_is_no_longer_enumerated_is_down(driver: Driver):
    driver.become(gpu("a"), gpu("b"))
    before = driver.sweep()
    driver.become(gpu("b"))
    after = driver.sweep()
    assert after["GPU-a"] == only_known(before["GPU-a"], after["GPU-a"])
    assert after["GPU-b"].up
    assert driver.sweeper.gpu_count == 1
    driver.become(gpu("a"), gpu("b"))
    assert driver.sweep()["GPU-a"].up


def test_a_replaced_gpu_is_not_lost(driver: Driver):
    driver.become(gpu("a"), gpu("b"))
    places = {uuid: reading.identity.pci_bus_id for uuid, reading in driver.sweep().items()}
    for name in "cdef":
        driver.become(gpu(name), gpu("b"))
        readings = driver.sweep()
        assert {uuid: reading.up for uuid, reading in readings.items()} == {
            f"GPU-{name}": True,
            "GPU-b": True,
        }
        assert readings[f"GPU-{name}"].identity.pci_bus_id == places["GPU-a"]


def test_a_lost_gpu_reopens_the_driver_at_growing_intervals(two: Driver, clock: Clock):
    """Reopening costs the healthy GPUs seconds: after one minute, two, four, and not after recovery."""
    two.sweep()
    two.fail("GPU_IS_LOST", None, "GPU-a")
    assert opened(two, clock, 15, 32) == [1] * 5 + [2] * 9 + [3] * 17 + [4]
    two.recover()
    assert two.ups() == {"GPU-a": True, "GPU-b": True}
    assert opened(two, clock, LONGEST_REOPEN_SECONDS, 5) == [4] * 5
    assert two.library.opened == 1


def test_the_intervals_grow_up_to_a_maximum(two: Driver, clock: Clock):
    two.fail("GPU_IS_LOST", POWER, "GPU-a")
    assert opened(two, clock, LONGEST_REOPEN_SECONDS + 1, 12) == list(range(1, 13))


def test_another_lost_gpu_resets_the_interval(two: Driver, clock: Clock):
    two.fail("GPU_IS_LOST", POWER, "GPU-a")
    assert opened(two, clock, LONGEST_REOPEN_SECONDS + 1, 6)[-1] == 6
    clock.now -= LONGEST_REOPEN_SECONDS
    two.fail("GPU_IS_LOST", POWER, "GPU-b")
    assert opened(two, clock, REOPEN_AFTER_SECONDS + 1, 3) == [6, 7, 7]


def test_a_failed_reopen_does_not_grow_the_interval(two: Driver, clock: Clock):
    two.fail("GPU_IS_LOST", POWER, "GPU-a")
    two.sweep()
    clock.now += REOPEN_AFTER_SECONDS + 1
    real, two.library.nvmlInitWithFlags = two.library.nvmlInitWithFlags, lambda *_: 999
    for _ in range(5):
        with pytest.raises(DriverError, match="cannot be initialised"):
            two.sweep()
        clock.now += LONGEST_REOPEN_SECONDS
    two.library.nvmlInitWithFlags = real
    assert opened(two, clock, 2 * REOPEN_AFTER_SECONDS + 1, 2) == [2, 3]


def test_a_gpu_that_is_no_longer_enumerated_reopens_the_driver(two: Driver, clock: Clock):
    two.sweep()
    two.become(gpu("b"))
    assert two.ups() == {"GPU-b": True, "GPU-a": False}
    clock.now += REOPEN_AFTER_SECONDS + 1
    assert two.ups() == {"GPU-b": True, "GPU-a": False}
    assert two.asked(INIT) == 2


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("code", ["NO_PERMISSION", "INSUFFICIENT_POWER"])
def test_a_gpu_without_permission_or_power_does_not_reopen_the_driver(
    two: Driver, clock: Clock, code: str, known: bool
):
    if known:
        two.sweep()
    two.fail(code, FIND, "GPU-a")
    for _ in range(3):
        assert two.ups() == {"GPU-b": True} | ({"GPU-a": False} if known else {})
        assert two.sweeper.gpu_count == 2
        clock.now += LONGEST_REOPEN_SECONDS + 1
    assert two.asked(INIT) == 1


# The time for one GPU, and more than that, in seconds.
BUDGET, TOO_LONG = 10.0, 12.0


def slow(driver: Driver, clock: Clock, function: str, uuid: str, seconds: list[float]) -> None:
    """Let a call about one GPU or its MIG devices take the last of ``seconds``."""
    real = getattr(driver.library, function)

    def call(*arguments: Any) -> int:
        before = driver.asked(function, uuid)
        answer = real(*arguments)
        clock.now += seconds[-1] if driver.asked(function, uuid) > before else 0.0
        return answer

    setattr(driver.library, function, call)


@pytest.mark.parametrize("function", ["nvmlDeviceGetUUID", "nvmlDeviceGetMigMode", POWER])
@pytest.mark.parametrize("known", [False, True])
def test_a_slow_gpu_is_down_and_read_last(clock: Clock, function: str, known: bool):
    """It costs its budget once per sweep, is not lost, and is back in its place once it answers."""
    seconds = [TOO_LONG if not known else 0.0]
    driver = Driver(gpu("a", SMALL), gpu("b"))
    slow(driver, clock, function, "GPU-a", seconds)
    driver.configure(gpu_budget=BUDGET)
    if known:
        driver.sweep()
        seconds.append(TOO_LONG)
    began = clock.now
    assert driver.ups() == {"GPU-a": False, "GPU-b": True}
    assert clock.now == began + TOO_LONG
    clock.now += LONGEST_REOPEN_SECONDS
    reading = driver.sweep()
    assert list(reading) == ["GPU-b", "GPU-a"]
    assert (len(reading["GPU-a"].mig), reading["GPU-a"].up) == (1 if known else 0, False)
    assert {(device, error) for device, _, error in driver.errors()} == {("GPU-a", "TooSlow")}
    seconds.append(0.0)
    assert driver.ups() == {"GPU-b": True, "GPU-a": True}
    assert driver.ups() == {"GPU-a": True, "GPU-b": True}
    assert driver.asked(INIT) == 1


def test_a_gpu_that_is_slow_to_be_found_is_down_not_lost(two: Driver, clock: Clock):
    seconds = [0.0]
    slow(two, clock, FIND, "GPU-a", seconds)
    two.configure(gpu_budget=BUDGET)
    two.sweep()
    seconds.append(TOO_LONG)
    assert opened(two, clock, LONGEST_REOPEN_SECONDS, 3) == [1, 1, 1]
    assert two.ups() == {"GPU-b": True, "GPU-a": False}
    assert two.errors() == {("", "nvmlDeviceGetUUID", "TooSlow"): 4}


def test_the_budget_is_per_gpu(clock: Clock):
    driver = Driver(*(gpu(name) for name in "abc"))
    for name in "abc":
        slow(driver, clock, POWER, f"GPU-{name}", [4.0])
    driver.configure(gpu_budget=BUDGET)
    assert driver.ups() == {f"GPU-{name}": True for name in "abc"}


def test_slow_gpus_share_the_budget_of_one(clock: Clock):
    """Each has its turn, and the others are read in every sweep."""
    driver = Driver(*(gpu(name) for name in "abcd"))
    seconds = [TOO_LONG]
    for name in "abc":
        slow(driver, clock, POWER, f"GPU-{name}", seconds)
    driver.configure(gpu_budget=BUDGET)
    driver.sweep()
    slow_ones = {f"GPU-{name}": False for name in "abc"}
    asked = []
    for _ in range(3):
        began = clock.now
        assert driver.ups() == {"GPU-d": True, **slow_ones}
        assert clock.now == began + TOO_LONG
        asked.append([driver.asked(POWER, f"GPU-{name}") for name in "abcd"])
        assert driver.sweeper.events.log.snapshot()[0] == {f"GPU-{name}" for name in "abcd"}
    assert asked == [[2, 1, 1, 2], [2, 2, 1, 3], [2, 2, 2, 4]]
    assert {device for device, _, _ in driver.errors()} == set(slow_ones)
    seconds.append(0.0)
    assert driver.ups() == {"GPU-d": True} | dict.fromkeys(slow_ones, True)


def test_a_gpu_that_comes_back_partitioned_differently_has_its_new_devices_only():
    driver = Driver(gpu("a", SMALL))
    driver.sweep()
    driver.fail("GPU_IS_LOST", None, "GPU-a")
    driver.sweep()
    driver.recover()
    driver.become(gpu("a", instance("new", gi=3)))
    assert [device.uuid for device in driver.sweep()["GPU-a"].mig] == ["MIG-new"]
