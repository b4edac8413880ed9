"""Classes of readings: what is read in every sweep, what once a minute, and that nothing old survives."""

from collections.abc import Callable
from typing import Any

import pytest

from exporter.demo.nvml.events import Happening
from exporter.metrics.family import MetricSet
from exporter.metrics.selection import Selection
from exporter.nvml.readings.device_reader import ENERGY_SECONDS, SLOW_SECONDS, Schedule, phase
from tests.core.hardware.making import LARGE, SMALL, WALL, Clock, Driver, gpu, instance, process
from tests.core.hardware.polled import Polled
from tests.core.hardware.watching import XID

MODE, FAN, LOCATION = "nvmlDeviceGetComputeMode", "nvmlDeviceGetFanSpeed", "nvmlDeviceGetMemoryErrorCounter"
ENERGY = "nvmlDeviceGetTotalEnergyConsumption"
DEFAULT_LIMIT, FIELDS = "nvmlDeviceGetPowerManagementDefaultLimit", "nvmlDeviceGetFieldValues"
LIMIT, POWER = "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerUsage"


@pytest.fixture
def polled(clock: Clock, driver: Driver) -> Polled:
    """Return the driver of one GPU, swept every five seconds."""
    return Polled(clock, driver)


def hopper(name: str, *instances: dict[str, Any]) -> dict[str, Any]:
    """Return a GPU with GPM."""
    return gpu(name, *instances, architecture=9, **({} if instances else {"mig": {"enabled": False}}))


def whole(*, busy: bool = False) -> Driver:
    """Return eight whole GPUs; busy ones have a process each."""
    names = [str(place) for place in range(8)]
    held = [process(1000 + place, f"GPU-{name}") for place, name in enumerate(names) if busy]
    return Driver(*map(hopper, names), host_processes=held)


def cut(*, busy: bool = False) -> Driver:
    """Return eight GPUs with seven MIG devices each; busy ones have a process each."""
    parts = {
        str(place): [instance(f"{place}-{slot}", gi=7 + slot, start=slot) for slot in range(7)]
        for place in range(8)
    }
    devices = [cut["uuid"] for cuts in parts.values() for cut in cuts]
    held = [process(1000 + place, uuid) for place, uuid in enumerate(devices) if busy]
    return Driver(*(hopper(name, *cuts) for name, cuts in parts.items()), host_processes=held)


@pytest.mark.parametrize(
    ("node", "busy", "metric_set", "most"),
    [
        (whole, False, "core", 1_940),
        (whole, False, "standard", 2_650),
        # With compute processes, there may be MPS clients, whose list is then read.
        (whole, True, "standard", 2_750),
        (cut, False, "core", 4_120),
        (cut, True, "standard", 5_940),
        (cut, True, "full", 5_940),
    ],
)
def test_calls_in_a_minute(
    clock: Clock, node: Callable[..., Driver], busy: bool, metric_set: MetricSet, most: int
):
    """About half of reading everything, for eight GPUs every five seconds, and even over the sweeps."""
    skip = Selection(metric_set=metric_set).unneeded()
    polled = Polled(clock, node(busy=busy), skip=skip)
    [first] = polled.calls()
    polled.calls(12)
    minute = polled.calls(12)
    assert sum(minute) <= most
    assert max(minute) - min(minute) <= (first - min(minute)) / 4


@pytest.mark.parametrize(("interval", "most"), [(1.0, 5), (7.0, 5), (15.0, 4), (20.0, 3)])
def test_energy_is_read_every_fifteen_seconds(clock: Clock, interval: float, most: int):
    polled = Polled(clock, whole(), interval=interval)
    read: dict[str, float] = {}
    fresh = []
    for _ in range(int(60 / interval)):
        now, readings = clock.now, polled.poll()
        new = [uuid for uuid, reading in readings.items() if not reading.energy_kept]
        read |= dict.fromkeys(new, now)
        fresh.append(len(new))
        assert all(reading.energy_millijoules is not None for reading in readings.values())
        assert now - min(read.values()) < ENERGY_SECONDS
    asked = [polled.driver.asked(ENERGY, uuid) for uuid in read]
    assert len(asked) == 8
    assert sum(asked) == sum(fresh)
    assert max(asked) <= most
    assert max(fresh[1:]) <= (8 if interval >= ENERGY_SECONDS else interval / ENERGY_SECONDS * 8 + 2)


@pytest.mark.parametrize("early", [0.0, 0.4])
def test_sweeps_that_jitter_read_energy_at_the_same_rhythm(clock: Clock, early: float):
    polled, read = Polled(clock, whole()), []
    for place in range(37):
        polled.poll()
        clock.now = 1000.0 + 5.0 * (place + 1) - (early if place % 2 else 0.0)
        read.append(polled.driver.asked(ENERGY, "GPU-0"))
    assert read[-1] - read[0] == 12


def test_failed_energy_is_absent_and_asked_at_its_own_rhythm(polled: Polled):
    polled.poll()
    polled.driver.fail("UNKNOWN", ENERGY)
    asked = polled.driver.asked(ENERGY, "GPU-a")
    readings = [polled.read() for _ in range(12)]
    known = [reading.energy_millijoules is not None for reading in readings]
    assert known[0]
    assert not any(known[3:])
    assert polled.driver.asked(ENERGY, "GPU-a") == asked + 4 + 1
    assert "Unknown" in {reading.withheld.get("power") for reading in readings}
    polled.driver.recover()
    readings = [polled.read() for _ in range(4)]
    first = next(reading for reading in readings if reading.energy_millijoules is not None)
    assert not first.energy_kept


def test_energy_is_read_at_once_after_an_event_or_a_loss(polled: Polled):
    """A reset or reload may have changed the counter."""
    polled.poll()
    assert polled.read().energy_kept
    address = polled.driver.library.board.gpus[0].address
    polled.driver.library.events.happen(Happening(device=address, type=XID, data=48))
    assert not polled.read().energy_kept
    polled.driver.fail("GPU_IS_LOST", POWER)
    assert polled.read().energy_millijoules is None
    polled.driver.recover()
    assert not polled.read().energy_kept
    assert polled.read().energy_kept
    assert polled.sweeper.close()
    assert not polled.read().energy_kept


def test_a_slow_value_is_read_once_a_minute(polled: Polled):
    for _ in range(25):
        assert polled.read().fan_percent is not None
    assert polled.driver.asked(FAN, "GPU-a") == 3
    assert polled.driver.asked(POWER, "GPU-a") == 25


def test_a_slow_value_is_at_most_a_minute_and_an_interval_old(clock: Clock):
    polled = Polled(clock, whole(), interval=7.0)
    for _ in range(30):
        now = clock.time()
        ages = [now - (reading.slow_read_at or 0.0) for reading in polled.poll().values()]
        assert len(ages) == 8
        assert 0 <= min(ages) <= max(ages) <= SLOW_SECONDS + 7.0


def test_slow_readings_are_spread_over_the_sweeps(clock: Clock):
    polled = Polled(clock, Driver(*(hopper(str(place)) for place in range(16))))
    polled.poll()
    due = [len(polled.asked_by_gpu(FAN)) for _ in range(24)]
    assert (max(due), sum(due)) == (2, 2 * 16)


def test_at_intervals_over_a_minute_every_sweep_reads_everything(clock: Clock, driver: Driver):
    polled = Polled(clock, driver, interval=61.0)
    for _ in range(5):
        now = clock.time()
        assert polled.read().slow_read_at == now
    assert driver.asked(FAN, "GPU-a") == 5


def test_after_an_event_all_of_that_gpu_is_read_once(clock: Clock):
    polled = Polled(clock, Driver(hopper("a"), hopper("b")))
    polled.poll()
    address = polled.driver.library.board.gpus[1].address
    polled.driver.library.events.happen(Happening(device=address, type=XID, data=48))
    assert polled.asked_by_gpu(FAN) == {"GPU-b": 1}
    assert polled.asked_by_gpu(FAN) == {}


def test_a_new_mig_layout_makes_slow_readings_due(clock: Clock):
    polled = Polled(clock, Driver(gpu("a", SMALL)))
    polled.poll()
    polled.driver.become(gpu("a", LARGE, fan=80))
    assert polled.asked_by_gpu(FAN) == {"GPU-a": 1}
    assert polled.read().fan_percent is not None


@pytest.mark.parametrize(
    ("function", "group", "reads"),
    [
        (MODE, "modes", lambda reading: reading.compute_mode),
        ("nvmlDeviceGetFanSpeed", "thermal", lambda reading: reading.fan_percent),
        ("nvmlDeviceGetVirtualizationMode", "vgpu", lambda reading: reading.virtualization),
    ],
)
def test_a_failing_slow_reading_is_absent_and_asked_once_a_minute(
    polled: Polled, function: str, group: str, reads: Callable[[Any], Any]
):
    """But once more after the first failure. Its group has the reason as long as it is absent."""
    assert reads(polled.read()) is not None
    polled.driver.fail("UNKNOWN", function)
    readings = [polled.read() for _ in range(12)]
    failing = [reading for reading in readings if reads(reading) is None]
    assert failing
    assert failing == readings[-len(failing) :]
    assert all(reading.up and reading.withheld[group] == "Unknown" for reading in failing)
    polled.poll()
    asked = polled.driver.asked(function, "GPU-a")
    for _ in range(24):
        assert reads(polled.read()) is None
    assert polled.driver.asked(function, "GPU-a") == asked + 2
    polled.driver.recover()
    assert reads([polled.read() for _ in range(12)][-1]) is not None


def test_a_failing_fixed_reading_is_asked_once_a_minute(polled: Polled):
    polled.driver.fail("UNKNOWN", DEFAULT_LIMIT)
    for _ in range(25):
        reading = polled.read()
        assert "default" not in reading.power_limits_milliwatts
        assert reading.withheld["power"] == "Unknown"
    assert polled.driver.asked(DEFAULT_LIMIT, "GPU-a") == 3 + 1
    polled.driver.recover()
    assert "default" in [polled.read() for _ in range(12)][-1].power_limits_milliwatts
    for _ in range(12):
        polled.poll()
    assert polled.driver.asked(DEFAULT_LIMIT, "GPU-a") == 4 + 1


def test_failing_slow_fields_are_absent_and_asked_once_a_minute(polled: Polled):
    assert polled.read().repairs.row_remap_pending is False
    polled.driver.fail("UNKNOWN", FIELDS)
    readings = [polled.read() for _ in range(13)]
    assert not readings[0].power_parts_milliwatts
    assert readings[0].repairs.row_remap_pending is False
    assert readings[-1].repairs.row_remap_pending is None
    assert not readings[-1].ecc.errors
    polled.driver.recover()
    reading = polled.read()
    assert reading.power_parts_milliwatts
    assert reading.withheld["repairs"] == "Unknown"
    reading = [polled.read() for _ in range(12)][-1]
    assert reading.repairs.row_remap_pending is False
    assert reading.ecc.errors
    assert reading.withheld.get("repairs") != "Unknown"


@pytest.mark.parametrize("function", [MODE, ENERGY, FIELDS, DEFAULT_LIMIT])
def test_a_single_failure_is_over_at_the_next_sweep(polled: Polled, function: str):
    polled.driver.fail("TIMEOUT", function)
    polled.poll()
    polled.driver.recover()
    reading = polled.read()
    assert reading.compute_mode == "default"
    assert reading.energy_millijoules is not None
    assert reading.ecc.errors
    assert "default" in reading.power_limits_milliwatts


def test_of_a_gpu_that_answers_nothing_no_slow_reading_is_asked(polled: Polled):
    """It is read completely as soon as it answers."""
    polled.poll()
    polled.driver.fail("UNKNOWN", device="GPU-a")
    asked = [polled.driver.asked(name, "GPU-a") for name in (FAN, MODE, ENERGY, FIELDS)]
    for _ in range(24):
        assert not polled.read().up
    assert [polled.driver.asked(name, "GPU-a") for name in (FAN, MODE, ENERGY, FIELDS)] == asked
    polled.driver.recover()
    reading = polled.read()
    assert (reading.up, reading.fan_percent is None, reading.energy_kept) == (True, False, False)


def test_without_a_current_reading_no_kept_one_is_reported(polled: Polled):
    polled.poll()
    for function, device in list(polled.driver.library.calls):
        if device == "GPU-a" and function != "nvmlDeviceGetUUID":
            polled.driver.fail("UNKNOWN", function, device)
    reading = polled.read()
    assert (reading.up, reading.fan_percent, reading.ecc, reading.slow_read_at) == (False, None, None, None)


def test_a_lost_gpu_loses_its_slow_values(polled: Polled):
    polled.poll()
    polled.driver.fail("GPU_IS_LOST", POWER)
    reading = polled.read()
    assert (reading.up, reading.fan_percent, reading.slow_read_at) == (False, None, None)
    polled.driver.become(gpu("a", fan=None))
    polled.driver.recover()
    reading = polled.read()
    assert (reading.up, reading.fan_percent) == (True, None)
    assert reading.slow_read_at == reading.read_at


def test_a_reopened_driver_loses_all_slow_values(polled: Polled):
    polled.poll()
    assert polled.sweeper.close()
    asked = polled.driver.asked(FAN, "GPU-a"), polled.driver.asked(LIMIT, "GPU-a")
    reading = polled.read()
    assert reading.slow_read_at == reading.read_at
    assert (polled.driver.asked(FAN, "GPU-a"), polled.driver.asked(LIMIT, "GPU-a")) == (
        asked[0] + 1,
        asked[1] + 1,
    )


def test_counters_by_location_are_kept_between_their_readings(polled: Polled):
    first = polled.read()
    asked = polled.driver.library.calls[LOCATION, "GPU-a"]
    second = polled.read()
    assert second.ecc == first.ecc
    assert first.ecc.by_location
    assert (first.slow_read_at, second.slow_read_at) == (WALL + 1000.0, WALL + 1000.0)
    assert polled.driver.library.calls[LOCATION, "GPU-a"] == asked


def test_phases_are_spread_evenly():
    """A GPU keeps its phase when a reading is late."""
    assert sorted(map(phase, range(8))) == [place / 8 for place in range(8)]
    now = [0.0]
    schedule = Schedule(SLOW_SECONDS, lambda: now[0])
    due = []
    for moment in (0, 5, 30, 35, 89, 91, 149, 150, 400, 405, 449, 450):
        now[0] = float(moment)
        if schedule.due("GPU-b", 1):
            due.append(moment)
    assert due == [0, 30, 91, 150, 400, 450]
