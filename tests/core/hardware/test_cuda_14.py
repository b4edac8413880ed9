"""Calls that are to be removed with CUDA 14: without them their readings are absent, and nothing else is."""

import logging

import pynvml
import pytest

from exporter.metrics import GROUPS
from tests.core.hardware.making import NODE, Driver, gpu

CLOCK = "nvmlDeviceGetApplicationsClock"
NEXT = NODE | {"driver_version": "650.10", "nvml_version": "14.650.10"}


def next_driver(*missing: str) -> Driver:
    return Driver(gpu("a", architecture=10), missing=missing, node=NEXT)


def removed_symbol(_: pytest.MonkeyPatch) -> Driver:
    return next_driver(CLOCK)


def removed_from_binding(monkeypatch: pytest.MonkeyPatch) -> Driver:
    monkeypatch.delattr(pynvml, CLOCK)
    return next_driver(CLOCK)


def deprecated(_: pytest.MonkeyPatch) -> Driver:
    """As NVIDIA announces it: a removed function returns NVML_ERROR_DEPRECATED."""
    driver = next_driver()
    driver.fail("DEPRECATED", CLOCK)
    return driver


@pytest.mark.parametrize("make", [removed_symbol, removed_from_binding, deprecated])
def test_application_clocks_are_absent_without_an_error(
    make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    driver = make(monkeypatch)
    with caplog.at_level(logging.DEBUG):
        readings = [driver.read() for _ in range(3)]
    for reading in readings:
        assert reading.up
        assert reading.clocks_application_megahertz == {}
        assert (
            set(reading.clocks_megahertz)
            == set(reading.clocks_max_megahertz)
            == {
                "graphics",
                "sm",
                "memory",
                "video",
            }
        )
        assert reading.violations_nanoseconds
    assert not driver.errors()
    assert not caplog.records
    # One call for each clock, and never again.
    assert driver.asked(CLOCK, "GPU-a") == (4 if make is deprecated else 0)


def test_the_call_of_violations_is_never_made():
    """Their times are field values, which stay."""
    driver = next_driver()
    driver.library.nvmlDeviceGetViolationStatus = lambda *_: pytest.fail("called")
    assert set(driver.read().violations_nanoseconds) >= {"power", "thermal", "board_limit"}
    assert "throttling" in GROUPS
