"""Sweeps over a node on which nothing goes wrong but much is different: boards, drivers, odd answers."""

from typing import Any

import pytest

from exporter.model import DriverInfo, GpuReading, Memory
from exporter.nvml.sweep import Sweeper
from tests.hardware import tiny
from tests.hardware.making import GIB, MIB, WALL, Clock, Driver, gpu, nvml, process, sweep


def only(driver: Driver) -> GpuReading:
    """Return the reading of the one GPU in a first sweep."""
    [reading] = Sweeper(nvml(driver.library)).sweep()
    return reading


def test_everything_that_a_gpu_says(clock: Clock):
    """Each reading has the driver's figure in the driver's unit, and the time at which it was read."""
    driver = Driver(
        gpu("a", minor=3, compute_mode="exclusive_process", pcie_replays=2),
        host_processes=[process(41, "GPU-a", load={"high": 50})],
    )
    sweeper = Sweeper(nvml(driver.library, boot_clock=lambda: 77.5, clock=lambda: 77.0))
    [reading] = sweeper.sweep()
    identity = reading.identity
    assert (identity.uuid, identity.index, identity.minor) == ("GPU-a", 0, 3)
    assert (identity.model, identity.architecture, identity.vendor) == ("NVIDIA Test", "Ampere", "nvidia")
    assert identity.pci_bus_id == "00000000:07:00.0"
    assert identity.serial
    assert reading.memory == Memory(
        total=16 * GIB,
        reserved=512 * MIB,
        used=(100 + 1024) * MIB,
        free=16 * GIB - 512 * MIB - (100 + 1024) * MIB,
    )
    assert (reading.compute_mode, reading.pcie_replays) == ("exclusive_process", 2)
    assert reading.energy_millijoules == 0
    assert reading.power_milliwatts == 20_000 + 100_000 * reading.utilization_percent // 100
    assert reading.memory_temperature_celsius > reading.temperature_celsius > 0
    assert set(reading.clocks_megahertz) == {"graphics", "sm", "memory", "video"}
    assert reading.clocks_megahertz["memory"] == 1215
    assert reading.fan_percent >= 30
    assert (reading.mig_enabled, reading.mig, reading.mig_slices) == (False, (), None)
    assert (reading.read_at, reading.read_monotonic) == (WALL + clock.now, 77.0)
    assert (reading.boot_seconds, reading.sweep, reading.mig_complete) == (77.5, 1, True)
    assert [found.pid for found in reading.processes] == [41]
    assert reading.process_utilization == {41: reading.utilization_percent}
    assert sweeper.driver == DriverInfo(
        driver_version="550.90.07", nvml_version="12.550.90.07", cuda_version="12.4"
    )
    assert not sweeper.calls.errors


def test_gpus_are_found_anew_at_every_sweep(driver: Driver):
    """A GPU that is added is there at the next sweep, without a restart."""
    sweeper = Sweeper(nvml(driver.library))
    assert list(sweep(sweeper)) == ["GPU-a"]
    driver.become(gpu("a"), gpu("b"))
    assert list(sweep(sweeper)) == ["GPU-a", "GPU-b"]
    assert sweeper.gpu_count == 2


def test_indices_move_and_readings_follow_their_gpu():
    """What is known of a GPU is known by its uuid, and its index is that of the last sweep."""
    a, b = gpu("a", minor=0), gpu("b", minor=1, fan=70)
    driver = Driver(a, b)
    sweeper = Sweeper(nvml(driver.library))
    sweep(sweeper)
    driver.become(b, a)
    after = sweep(sweeper)
    assert [(name, reading.identity.index) for name, reading in after.items()] == [("GPU-b", 0), ("GPU-a", 1)]
    assert after["GPU-b"].fan_percent == 70
    assert after["GPU-b"].identity.minor == 1


def test_one_uuid_is_read_once(driver: Driver):
    """A driver that names the same GPU twice does not make it two."""

    def uuid(_handle: Any, buffer: Any, _length: Any) -> int:
        buffer.value = b"GPU-a"
        return 0

    driver.become(gpu("a"), gpu("b"))
    driver.library.nvmlDeviceGetUUID = uuid
    assert [reading.identity.uuid for reading in Sweeper(nvml(driver.library)).sweep()] == ["GPU-a"]


def test_fixed_facts_are_asked_once(driver: Driver):
    """Later sweeps ask for the name no more, but for the uuid, since indices move."""
    sweeper = Sweeper(nvml(driver.library))
    for _ in range(3):
        sweep(sweeper)
    assert driver.asked("nvmlDeviceGetName", "GPU-a") == 1
    assert driver.asked("nvmlDeviceGetUUID", "GPU-a") == 3


def test_an_old_driver_tells_what_it_can():
    """A driver from before most of these calls still gives every reading that it had a call for."""
    missing = (
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetTemperatureV",
        "nvmlDeviceGetArchitecture",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetGraphicsRunningProcesses_v3",
        "nvmlDeviceGetMPSComputeRunningProcesses_v3",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetFieldValues",
        "nvmlSystemGetCudaDriverVersion_v2",
    )
    driver = Driver(missing=missing, host_processes=[process(41, "GPU-a")])
    sweeper = Sweeper(nvml(driver.library))
    [reading] = sweeper.sweep()
    assert reading.memory == Memory(
        total=16 * GIB, used=(612 + 1024) * MIB, free=16 * GIB - (612 + 1024) * MIB, reserved=None
    )
    assert reading.temperature_celsius is not None
    assert [found.pid for found in reading.processes] == [41]
    assert reading.mig_enabled is False
    assert (reading.identity.architecture, reading.memory_temperature_celsius) == (None, None)
    assert sweeper.driver.cuda_version is None
    assert not sweeper.calls.errors


def test_a_board_without_sensors_is_up_and_silent():
    """Passive boards have no fan, consumer boards no memory sensor and no serial: None, and no failure."""
    driver = Driver(gpu("a", fan=None, memory_temperature=False, serial=None))
    sweeper = Sweeper(nvml(driver.library))
    [reading] = sweeper.sweep()
    assert (reading.fan_percent, reading.memory_temperature_celsius, reading.identity.serial) == (None,) * 3
    assert reading.up
    assert not sweeper.calls.errors


@pytest.mark.parametrize("percent", [101, 250, 4_294_967_295])
def test_utilization_past_100_percent_is_dropped(driver: Driver, percent: int):
    """Such a figure is garbage; its neighbour in the same answer is kept."""
    driver.library.nvmlDeviceGetUtilizationRates = tiny.fills(gpu=percent, memory=40)
    reading = only(driver)
    assert (reading.utilization_percent, reading.memory_copy_percent) == (None, 40)


@pytest.mark.parametrize(("celsius", "believed"), [(0, None), (-1, None), (255, None), (1, 1), (104, 104)])
def test_temperatures_that_cannot_be_are_dropped(driver: Driver, celsius: int, believed: int | None):
    """A board without a sensor answers 0 or a sentinel."""
    driver.library.nvmlDeviceGetTemperatureV = tiny.fills(temperature=celsius)
    assert only(driver).temperature_celsius == believed


@pytest.mark.parametrize(
    "figures",
    [
        {"total": 0},
        {"total": 1000, "used": 1001},
        {"total": 1000, "free": 1001},
        {"total": 1000, "reserved": 1001},
        dict.fromkeys(("total", "used", "free", "reserved"), tiny.NOT_AVAILABLE),
    ],
)
def test_memory_that_does_not_add_up_is_dropped(driver: Driver, figures: dict[str, int]):
    """A device without memory, or that uses more than it has, is a broken answer."""
    driver.library.nvmlDeviceGetMemoryInfo_v2 = tiny.fills(**figures)
    reading = only(driver)
    assert reading.memory is None
    assert reading.up


def test_a_minor_that_is_not_available_is_unknown(driver: Driver):
    """No device file has a sentinel for its number."""
    driver.library.nvmlDeviceGetMinorNumber = tiny.writes(2**32 - 1)
    assert only(driver).identity.minor is None


def test_an_unknown_compute_mode_is_unknown(driver: Driver):
    """A mode that NVML will have one day is none of today's."""
    driver.library.nvmlDeviceGetComputeMode = tiny.writes(9)
    assert only(driver).compute_mode is None


@pytest.mark.parametrize(
    ("told", "kept"),
    [(16 * GIB + 1, None), (tiny.NOT_AVAILABLE, None), (tiny.NOT_AVAILABLE - 5, None), (0, 0)],
)
def test_process_memory_that_cannot_be_is_unknown(driver: Driver, told: int, kept: int | None):
    """More than the device has, or a sentinel, is unknown; the process is there all the same."""
    driver.library.nvmlDeviceGetComputeRunningProcesses_v3 = tiny.lists(tiny.context(41, memory=told))
    [found] = only(driver).processes
    assert (found.pid, found.memory) == (41, kept)


def test_what_a_device_does_not_support_is_asked_once(driver: Driver):
    """The answer is remembered by device: it costs nothing at later sweeps, and the next GPU is asked."""
    silent = ("nvmlDeviceGetPowerUsage", "nvmlDeviceGetProcessUtilization")
    driver.become(gpu("a", unsupported=list(silent)), gpu("b"))
    sweeper = Sweeper(nvml(driver.library))
    for _ in range(3):
        readings = sweep(sweeper)
    for name in silent:
        assert driver.asked(name, "GPU-a") == 1
        assert name in readings["GPU-a"].unsupported
        assert name not in readings["GPU-b"].unsupported
    assert driver.asked("nvmlDeviceGetPowerUsage", "GPU-b") == 3
    assert readings["GPU-a"].power_milliwatts is None
    assert readings["GPU-a"].process_utilization is None
    assert readings["GPU-b"].power_milliwatts == 20_000


def test_a_clock_that_was_told_once_is_not_given_up_for_an_invalid_argument(driver: Driver):
    """Boards without it say so from the start; later the same answer is a failure, which may pass."""
    sweeper = Sweeper(nvml(driver.library))
    [before] = sweep(sweeper).values()
    driver.fail("INVALID_ARGUMENT", "nvmlDeviceGetClockInfo")
    [failing] = sweep(sweeper).values()
    assert not failing.clocks_megahertz
    assert sweeper.calls.errors["GPU-a", "nvmlDeviceGetClockInfo", "InvalidArgument"] == 4
    driver.recover()
    [after] = sweep(sweeper).values()
    assert after.clocks_megahertz.keys() == before.clocks_megahertz.keys() != set()


def test_one_argument_that_is_not_supported_says_nothing_of_the_others(driver: Driver):
    """A board without a video clock still has the other three."""

    def clock(_handle: Any, kind: Any, reference: Any) -> int:
        return 3 if kind.value == 3 else tiny.writes(100 + kind.value)(reference)

    driver.library.nvmlDeviceGetClockInfo = clock
    assert only(driver).clocks_megahertz == {"graphics": 100, "sm": 101, "memory": 102}


def test_after_the_driver_was_opened_anew_everything_is_asked_again(driver: Driver):
    """Another driver may support what the one before did not."""
    driver.become(gpu("a", unsupported=["nvmlDeviceGetPowerUsage"]))
    sweeper = Sweeper(nvml(driver.library))
    assert sweep(sweeper)["GPU-a"].power_milliwatts is None
    sweeper.close()
    driver.become(gpu("a"))
    assert sweep(sweeper)["GPU-a"].power_milliwatts == 20_000


def test_a_node_without_gpus_is_a_reading_too(driver: Driver):
    """A driver that counts none is no failure."""
    driver.become()
    sweeper = Sweeper(nvml(driver.library))
    assert sweep(sweeper) == {}
    assert sweeper.gpu_count == 0
