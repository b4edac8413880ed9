"""Promises about the readings of all devices."""

import math
from collections.abc import Iterable
from dataclasses import replace

from exporter.model import GpuReading, MigReading
from tests.together.fuzz.promises import BrokenPromiseError


def timeless(reading: GpuReading) -> GpuReading:
    """Return a reading without times."""
    return replace(reading, read_at=0.0, slow_read_at=None, read_monotonic=0.0, boot_seconds=None)


def require_believable(readings: Iterable[GpuReading]) -> None:
    """Require that used is not above total, and no share above 100 percent."""
    for reading in readings:
        for device in (reading, *(reading.mig or ())):
            require_believable_part(device)


def require_believable_part(reading: GpuReading | MigReading) -> None:
    """Require the same of one device."""
    memory = reading.memory
    if memory is not None and max(memory.used, memory.free) > memory.total:
        raise BrokenPromiseError(f"{memory} is more than the device has")
    percents = [reading.utilization_percent]
    if isinstance(reading, GpuReading):
        percents.append(reading.memory_copy_percent)
    used: Iterable[float | None] = (reading.process_utilization or {}).values()
    for percent in (*percents, *used):
        if percent is not None and not 0 <= percent <= 100:
            raise BrokenPromiseError(f"{percent} percent of a device")
    for process in reading.processes or ():
        if process.pid < 1:
            raise BrokenPromiseError(f"a process of pid {process.pid}")
        total = memory.total if memory is not None else math.inf
        if process.memory is not None and not 0 <= process.memory <= total:
            raise BrokenPromiseError(f"a process has {process.memory} of {total} bytes")
