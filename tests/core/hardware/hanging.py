"""A source of a driver whose calls hang, by the fixture ``hang_clock``, which only a hanging call moves."""

import threading
from typing import Any, Self

from exporter.model import GpuReading
from exporter.nvml.source import NvmlSource
from tests.core.hardware.making import Driver, nvml
from tests.waiting import wait_until_async

MEMORY, PAIR, REGISTER = (
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetTopologyCommonAncestor",
    "nvmlDeviceRegisterEvents",
)
# Checks for a hang are five times as frequent.
CALL_TIMEOUT = 0.05
# A call that hangs takes this long by the clock; no other limit is that short.
HANG_SECONDS = 1.0


class Reader:
    """Reads a driver, and counts the threads that do."""

    def __init__(self, driver: Driver, **options: Any) -> None:
        self.source = NvmlSource(nvml(driver.library, call_timeout=CALL_TIMEOUT, **options))
        self._driver = driver
        self._earlier = set(threading.enumerate())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.recover()
        await self.source.close()

    async def read(self) -> dict[str, GpuReading]:
        """Read once; return the GPUs by uuid."""
        return {gpu.identity.uuid: gpu for gpu in (await self.source.read()).gpus}

    def threads(self) -> int:
        """Return the number of threads that read this driver."""
        return sum(thread.name == "nvml" and thread not in self._earlier for thread in threading.enumerate())

    async def recover(self) -> None:
        """Let all calls return, and wait until the abandoned threads have ended."""
        self._driver.recover()
        await self.settle()

    async def settle(self) -> None:
        """Wait until the abandoned threads have ended."""
        await wait_until_async(lambda: self.threads() <= 1)
