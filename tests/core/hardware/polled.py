"""A driver that is swept every few seconds, by a clock that a test sets."""

from collections import Counter
from collections.abc import Collection

from exporter.model import GpuReading
from exporter.nvml.sweep import Sweeper
from tests.core.hardware.making import Clock, Driver, nvml, sweep
from tests.waiting import LIMIT_SECONDS

INTERVAL = 5.0


class Polled:
    """A driver that is swept every few seconds."""

    def __init__(
        self, clock: Clock, driver: Driver, interval: float = INTERVAL, *, skip: Collection[str] = ()
    ) -> None:
        self.driver = driver
        self.sweeper = Sweeper(nvml(driver.library, clock=clock.monotonic, skip=frozenset(skip)))
        self._clock, self._interval = clock, interval

    def poll(self) -> dict[str, GpuReading]:
        """Sweep, and let the interval pass."""
        assert self.driver.library.events.settle(LIMIT_SECONDS)
        readings = sweep(self.sweeper)
        self._clock.now += self._interval
        return readings

    def read(self) -> GpuReading:
        """Sweep, and return the reading of the first GPU."""
        return next(iter(self.poll().values()))

    def calls(self, polls: int = 1) -> list[int]:
        """Sweep ``polls`` times; return the calls of each sweep."""
        counts = []
        for _ in range(polls):
            before = sum(self.sweeper.calls.records.asked.values())
            self.poll()
            counts.append(sum(self.sweeper.calls.records.asked.values()) - before)
        return counts

    def asked_by_gpu(self, function: str) -> Counter[str]:
        """Sweep once; return how often a function was called about each GPU."""
        before = Counter(self.driver.library.calls)
        self.poll()
        return Counter(
            {
                device: count - before[name, device]
                for (name, device), count in self.driver.library.calls.items()
                if name == function and count > before[name, device]
            }
        )
