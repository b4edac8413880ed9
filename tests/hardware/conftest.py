"""What every test of this room needs: a binding as after import, and time that is set by hand."""

import threading
from collections.abc import Iterator
from typing import Any

import pynvml
import pytest

from tests.hardware.making import Clock, Driver, gpu, process
from tests.hardware.watching import Watch, Watched


@pytest.fixture(autouse=True)
def _binding(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave the binding without a library, which it keeps for the whole process, and nobody who would use it.

    A thread that still waited for events would take those of the next test, whose set has the same number.
    """
    monkeypatch.setattr("exporter.nvml.event_wait.SLICE_MILLISECONDS", 10)
    yield
    pynvml.nvmlLib = None
    pynvml._nvmlGetFunctionPointer_cache.clear()
    for thread in threading.enumerate():
        if thread.name == "nvml-events":
            thread.join(1.0)
            assert not thread.is_alive()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Put the sweeps on a clock that stands still until it is moved."""
    clock = Clock()
    for module in ("nvml.sweep", "nvml.gpu", "nvml.driver.calls", "model.lost_gpu"):
        monkeypatch.setattr(f"exporter.{module}.time", clock)
    return clock


@pytest.fixture
def driver() -> Iterator[Driver]:
    """Give a driver of one GPU; calls that hang in it are let go at the end."""
    driver = Driver()
    yield driver
    driver.library.release()


@pytest.fixture
def two(driver: Driver) -> Driver:
    """Give two GPUs that could be cut and are not, with a process each."""
    a, b = (gpu(name, mig={"enabled": False}) for name in "ab")
    driver.become(a, b, host_processes=[process(41, "GPU-a"), process(42, "GPU-b")])
    return driver


@pytest.fixture
def watch() -> Iterator[Watch]:
    """Watch a driver; the thread must not have misused its set."""
    made: list[Watched] = []

    def start(*gpus: dict[str, Any], started: bool = True, **parts: Any) -> Watched:
        made.append(Watched(Driver(*gpus, **parts)))
        if started:
            made[-1].start()
        return made[-1]

    yield start
    for watched in made:
        watched.close()
        assert watched.driver.library.events.misuse == {}
