"""Sweeps over different boards and drivers, and implausible answers."""

from typing import Any

import pytest

from exporter.model import DriverInfo, Memory
from tests.core.hardware import tiny
from tests.core.hardware.making import GIB, MIB, WALL, Clock, Driver, gpu, process


def test_every_reading_of_a_gpu(clock: Clock):
    driver = Driver(
        gpu("a", minor=3, compute_mode="exclusive_process", pcie_replays=2),
        host_processes=[process(41, "GPU-a", load={"high": 50})],
    )
    driver.configure(boot_clock=lambda: 77.5, clock=lambda: 77.0)
    reading = driver.read()
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
    assert [one.pid for one in reading.processes] == [41]
    assert reading.process_utilization == {41: reading.utilization_percent}
    assert driver.sweeper.driver == DriverInfo(
        driver_version="550.90.07", nvml_version="12.550.90.07", cuda_version="12.4"
    )
    assert not driver.errors()


def test_an_added_gpu_is_read_in_the_next_sweep(driver: Driver):
    assert list(driver.sweep()) == ["GPU-a"]
    driver.become(gpu("a"), gpu("b"))
    assert list(driver.sweep()) == ["GPU-a", "GPU-b"]
    assert driver.sweeper.gpu_count == 2


def test_readings_follow_their_gpu_when_indices_change():
    a, b = gpu("a", minor=0), gpu("b", minor=1, fan=70)
    driver = Driver(a, b)
    driver.sweep()
    driver.become(b, a)
    after = driver.sweep()
    assert [(name, reading.identity.index) for name, reading in after.items()] == [("GPU-b", 0), ("GPU-a", 1)]
    assert after["GPU-b"].fan_percent == 70
    assert after["GPU-b"].identity.minor == 1


def test_a_uuid_listed_twice_is_read_once(driver: Driver):
    def uuid(_handle: Any, buffer: Any, _length: Any) -> int:
        buffer.value = b"GPU-a"
        return 0

    driver.become(gpu("a"), gpu("b"))
    driver.library.nvmlDeviceGetUUID = uuid
    assert list(driver.sweep()) == ["GPU-a"]


def test_the_name_is_asked_once_and_the_uuid_in_every_sweep(driver: Driver):
    for _ in range(3):
        driver.sweep()
    assert driver.asked("nvmlDeviceGetName", "GPU-a") == 1
    assert driver.asked("nvmlDeviceGetUUID", "GPU-a") == 3


def test_an_old_driver_is_read_by_its_older_calls():
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
    reading = driver.read()
    assert reading.memory == Memory(
        total=16 * GIB, used=(612 + 1024) * MIB, free=16 * GIB - (612 + 1024) * MIB, reserved=None
    )
    assert reading.temperature_celsius is not None
    assert [one.pid for one in reading.processes] == [41]
    assert reading.mig_enabled is False
    assert (reading.identity.architecture, reading.memory_temperature_celsius) == (None, None)
    assert driver.sweeper.driver.cuda_version is None
    assert not driver.errors()


def test_missing_sensors_are_none_and_no_failure():
    driver = Driver(gpu("a", fan=None, memory_temperature=False, serial=None))
    reading = driver.read()
    assert (reading.fan_percent, reading.memory_temperature_celsius, reading.identity.serial) == (None,) * 3
    assert reading.up
    assert not driver.errors()


NONE = tiny.NOT_AVAILABLE


@pytest.mark.parametrize(
    ("function", "answer", "expected"),
    [
        (
            "UtilizationRates",
            {"gpu": 101, "memory": 40},
            {"utilization_percent": None, "memory_copy_percent": 40},
        ),
        ("UtilizationRates", {"gpu": 2**32 - 1, "memory": 250}, {"memory_copy_percent": None}),
        ("TemperatureV", {"temperature": 0}, {"temperature_celsius": None}),
        ("TemperatureV", {"temperature": -1}, {"temperature_celsius": None}),
        ("TemperatureV", {"temperature": 255}, {"temperature_celsius": None}),
        ("TemperatureV", {"temperature": 104}, {"temperature_celsius": 104}),
        ("MemoryInfo_v2", {"total": 0}, {"memory": None}),
        ("MemoryInfo_v2", {"total": 1000, "used": 1001}, {"memory": None}),
        ("MemoryInfo_v2", {"total": 1000, "free": 1001}, {"memory": None}),
        ("MemoryInfo_v2", {"total": 1000, "reserved": 1001}, {"memory": None}),
        ("MemoryInfo_v2", {"total": NONE, "used": NONE, "free": NONE, "reserved": NONE}, {"memory": None}),
    ],
)
def test_implausible_answers_are_unknown(
    driver: Driver, function: str, answer: dict[str, int], expected: dict[str, Any]
):
    setattr(driver.library, f"nvmlDeviceGet{function}", tiny.fills(**answer))
    reading = driver.read()
    assert {name: getattr(reading, name) for name in expected} == expected
    assert reading.up


MEMORY_CALLS = ["nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"]
ONE_LANE = {"generation": 1, "width": 1, "max_generation": 1, "max_width": 1}


@pytest.mark.parametrize(
    ("changes", "link", "copies"),
    [
        # GB10: memory is not supported, and the link is made up.
        ({"unsupported": MEMORY_CALLS, "pcie": ONE_LANE}, None, None),
        ({"unsupported": MEMORY_CALLS, "pcie": ONE_LANE | {"max_generation": 5, "max_width": 16}}, 1, None),
        ({"unsupported": MEMORY_CALLS}, 4, None),
        ({"pcie": ONE_LANE}, None, None),
        # A card of its own in a slow slot, or an idle one.
        ({"pcie": ONE_LANE | {"max_generation": 4, "max_width": 1}}, 1, 0),
        ({}, 4, 0),
    ],
)
def test_what_a_driver_fills_in_for_an_integrated_gpu_is_absent(
    driver: Driver, changes: dict[str, Any], link: int | None, copies: int | None
):
    calls = {
        "CurrPcieLinkGeneration": "generation",
        "CurrPcieLinkWidth": "width",
        "MaxPcieLinkGeneration": "max_generation",
        "MaxPcieLinkWidth": "max_width",
    }
    answers = {f"nvmlDeviceGet{call}": [changes.get("pcie", {}).get(key, 4)] for call, key in calls.items()}
    answers |= {"nvmlDeviceGetUtilizationRates": [91, 0], "nvmlDeviceGetPcieReplayCounter": [0]}
    driver.become(gpu("a", unsupported=changes.get("unsupported", []), answers=answers))
    reading = driver.read()
    assert reading.utilization_percent == 91
    assert reading.memory_copy_percent == copies
    assert (None if reading.pcie_link is None else reading.pcie_link.generation) == link
    assert (reading.pcie_replays is None) == (link is None)
    assert not driver.errors()


@pytest.mark.parametrize(
    ("call", "answer"), [("PerformanceState", 32), ("TemperatureV", 0), ("PcieReplayCounter", 2**32 - 1)]
)
def test_what_stands_for_no_value_is_no_failure(driver: Driver, call: str, answer: int):
    driver.become(gpu("a", answers={f"nvmlDeviceGet{call}": [answer]}))
    reading = driver.read()
    values = reading.performance_state, reading.temperature_celsius, reading.pcie_replays
    assert values.count(None) == 1
    assert not driver.errors()


def test_failing_memory_is_no_sign_of_an_integrated_gpu(driver: Driver):
    answers = {"nvmlDeviceGetUtilizationRates": [91, 0]}
    driver.become(gpu("a", answers=answers))
    for name in MEMORY_CALLS:
        driver.fail("UNKNOWN", name)
    assert driver.read().memory_copy_percent == 0


@pytest.mark.parametrize(("answer", "fan"), [(0, 0), (100, 100), (130, 130), (1450, None), (2**32 - 1, None)])
def test_revolutions_of_a_fan_are_no_percentage(driver: Driver, answer: int, fan: int | None):
    driver.become(gpu("a", answers={"nvmlDeviceGetFanSpeed": [answer]}))
    assert driver.read().fan_percent == fan
    counted = {("GPU-a", "nvmlDeviceGetFanSpeed", "ImpossibleValue"): 1} if answer == 1450 else {}
    assert driver.errors() == counted


def test_an_unavailable_minor_is_unknown(driver: Driver):
    driver.library.nvmlDeviceGetMinorNumber = tiny.writes(2**32 - 1)
    assert driver.read().identity.minor is None


@pytest.mark.parametrize(
    ("memory", "expected"),
    [(tiny.NOT_AVAILABLE, None), (tiny.NOT_AVAILABLE - 5, None), (0, 0)],
)
def test_implausible_process_memory_is_unknown(driver: Driver, memory: int, expected: int | None):
    driver.library.nvmlDeviceGetComputeRunningProcesses_v3 = tiny.lists(tiny.context(41, memory=memory))
    [running] = driver.read().processes
    assert (running.pid, running.memory) == (41, expected)


def test_unsupported_calls_are_remembered_by_gpu(driver: Driver):
    samples = "nvmlDeviceGetProcessUtilization", "nvmlDeviceGetProcessesUtilizationInfo"
    silent = ("nvmlDeviceGetPowerUsage", *samples)
    driver.become(gpu("a", unsupported=list(silent)), gpu("b"))
    for _ in range(3):
        readings = driver.sweep()
    for name in silent:
        assert driver.asked(name, "GPU-a") == 1
        assert name in readings["GPU-a"].unsupported
        assert name not in readings["GPU-b"].unsupported
    assert driver.asked("nvmlDeviceGetPowerUsage", "GPU-b") == 3
    assert readings["GPU-a"].power_milliwatts is None
    assert readings["GPU-a"].process_utilization is None
    assert readings["GPU-b"].power_milliwatts == 20_000


def test_a_known_clock_survives_an_invalid_argument(driver: Driver):
    """Boards without it answer so from the start; later it is a failure."""
    before = driver.read()
    driver.fail("INVALID_ARGUMENT", "nvmlDeviceGetClockInfo")
    failing = driver.read()
    assert not failing.clocks_megahertz
    assert driver.errors()["GPU-a", "nvmlDeviceGetClockInfo", "InvalidArgument"] == 4
    driver.recover()
    after = driver.read()
    assert after.clocks_megahertz.keys() == before.clocks_megahertz.keys() != set()


def test_an_unsupported_argument_does_not_affect_others(driver: Driver):
    def clock(_handle: Any, kind: Any, reference: Any) -> int:
        return 3 if kind.value == 3 else tiny.writes(100 + kind.value)(reference)

    driver.library.nvmlDeviceGetClockInfo = clock
    assert driver.read().clocks_megahertz == {"graphics": 100, "sm": 101, "memory": 102}


def test_a_reopened_driver_is_asked_for_unsupported_calls_again(driver: Driver):
    driver.become(gpu("a", unsupported=["nvmlDeviceGetPowerUsage"]))
    assert driver.sweep()["GPU-a"].power_milliwatts is None
    driver.sweeper.close()
    driver.become(gpu("a"))
    assert driver.sweep()["GPU-a"].power_milliwatts == 20_000


def test_a_driver_without_gpus_is_no_failure(driver: Driver):
    driver.become()
    assert driver.sweep() == {}
    assert driver.sweeper.gpu_count == 0
