"""Readings that no chosen series needs: they are not read, and nothing else is missing."""

import pytest

from exporter.nvml.readings.answers import is_skipped
from tests.core.hardware.making import SMALL, Clock, Driver, gpu
from tests.core.hardware.polled import Polled


@pytest.mark.parametrize(
    ("into", "skipped"),
    [
        (("bar1",), True),
        (("clocks_megahertz", "video"), True),
        (("clocks_megahertz", "sm"), False),
        (("ecc", "by_location", ("corrected", "volatile", "dram")), True),
        (("ecc", "errors", ("corrected", "volatile")), False),
        ((), False),
    ],
)
def test_a_skipped_path_includes_those_below_it(into: tuple[object, ...], skipped: bool):
    assert is_skipped(into, {"bar1", "clocks_megahertz.video", "ecc.by_location", "bar", "sm"}) is skipped


def test_a_skipped_reading_is_absent_and_not_asked(clock: Clock):
    driver = Driver(gpu("a", SMALL), gpu("b"))
    names = ("ecc.by_location", "clocks_megahertz.video", "bar1", "temperature_thresholds_celsius")
    readings = Polled(clock, driver, skip=names).poll()
    everything = Polled(clock, Driver(gpu("a", SMALL), gpu("b"))).poll()
    for name, reading in readings.items():
        assert (reading.bar1, reading.temperature_thresholds_celsius) == (None, {})
        assert reading.skipped == frozenset(names)
        assert set(reading.clocks_megahertz) == {"graphics", "sm", "memory"}
        assert reading.ecc is None or not reading.ecc.by_location
        assert reading.fan_percent == everything[name].fan_percent is not None
        assert reading.memory == everything[name].memory
    assert [mig.bar1 for mig in readings["GPU-a"].mig] == [None]
    asked = {function for function, _ in driver.library.calls}
    assert asked.isdisjoint({"nvmlDeviceGetBAR1MemoryInfo", "nvmlDeviceGetTemperatureThreshold"})
    assert "nvmlDeviceGetMemoryErrorCounter" not in asked
