"""What every test of this room needs: a binding as after import, and time that is set by hand."""

from collections.abc import Iterator

import pynvml
import pytest

from tests.hardware.making import Clock, Driver


@pytest.fixture(autouse=True)
def _binding() -> Iterator[None]:
    """Leave the binding without a library: it keeps one for the whole process."""
    yield
    pynvml.nvmlLib = None
    pynvml._nvmlGetFunctionPointer_cache.clear()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Put the sweeps on a clock that stands still until it is moved."""
    clock = Clock()
    monkeypatch.setattr("exporter.hardware.sweep.time", clock)
    return clock


@pytest.fixture
def driver() -> Iterator[Driver]:
    """Give a driver of one GPU; calls that hang in it are let go at the end."""
    driver = Driver()
    yield driver
    driver.library.release()
