"""A binding as after import for every test here, clocks that tests set, and drivers to read."""

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from exporter.demo.nvml import FakeNvml
from tests.core.hardware.hanging import HANG_SECONDS
from tests.core.hardware.making import Clock, Driver, gpu, process
from tests.core.hardware.watching import Watch, Watched, event_threads
from tests.waiting import LIMIT_SECONDS


@pytest.fixture(autouse=True)
def _binding(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave the binding, which the whole process shares, without a library and without a thread that uses it.

    A thread that still waited for events would take those of the next test, whose set has the same number.
    Waits for events return soon, and a busy machine does not make them hang.
    """
    monkeypatch.setattr("exporter.nvml.event_wait.SLICE_MILLISECONDS", 10)
    monkeypatch.setattr("exporter.nvml.event_wait.REST_SECONDS", 0.002)
    monkeypatch.setattr("exporter.nvml.event_wait.END_SECONDS", 120.0)
    monkeypatch.setattr("exporter.nvml.event_wait.HUNG_SECONDS", 600.0)
    yield
    library, pynvml.nvmlLib = pynvml.nvmlLib, None
    pynvml._nvmlGetFunctionPointer_cache.clear()
    if isinstance(library, FakeNvml):
        library.release()
    for thread in event_threads():
        thread.join(LIMIT_SECONDS)
        assert not thread.is_alive()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return a clock that stands still until it is moved; sweeps and limits of calls go by it."""
    clock = Clock()
    modules = (
        "nvml.sweep",
        "nvml.gpu",
        "nvml.driver.calls",
        "model.lost_gpu",
        "concurrency",
        "amd.sysfs_file",
    )
    for module in modules:
        monkeypatch.setattr(f"exporter.{module}.time", clock)
    return clock


@pytest.fixture
def hang_clock(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return a clock that only a call that hangs moves, so that no other call ever takes too long."""

    class Hang(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            clock.now += HANG_SECONDS
            return super().wait(timeout)

    monkeypatch.setattr("exporter.demo.nvml.threading", SimpleNamespace(Event=Hang, Lock=threading.Lock))
    return clock


@pytest.fixture
def driver() -> Iterator[Driver]:
    """Return a driver of one GPU; calls that hang in it return at the end."""
    driver = Driver()
    yield driver
    driver.library.release()


@pytest.fixture
def two(driver: Driver) -> Driver:
    """Return a driver of two GPUs with MIG disabled, with a process each."""
    a, b = (gpu(name, mig={"enabled": False}) for name in "ab")
    driver.become(a, b, host_processes=[process(41, "GPU-a"), process(42, "GPU-b")])
    return driver


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    """Return a function that watches the events of a driver; the thread must not have misused its set."""
    clock = Clock()
    monkeypatch.setattr("exporter.nvml.events.time", clock)
    started: list[Watched] = []

    def start(*gpus: dict[str, Any], start: bool = True, **parts: Any) -> Watched:
        watched = Watched(Driver(*gpus, **parts), clock)
        started.append(watched)
        if start:
            watched.start()
        return watched

    yield start
    for watched in started:
        watched.close()
        assert watched.driver.library.events.misuse == {}
