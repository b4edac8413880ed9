"""What holds of the readings of every device, whoever its maker is."""

import math
from collections.abc import Iterable
from dataclasses import replace

from exporter.model import GpuReading, MigReading
from tests.fuzz.promises import BrokenPromiseError


def timeless(reading: GpuReading) -> GpuReading:
    """Leave out of a reading what is told by a clock."""
    return replace(reading, read_at=0.0, slow_read_at=None, read_monotonic=0.0, boot_seconds=None)


def require_believable(readings: Iterable[GpuReading]) -> None:
    """Require that nothing that is used is more than there is, and no share is more than all."""
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
    for each in reading.processes or ():
        if each.pid < 1:
            raise BrokenPromiseError(f"a process of pid {each.pid}")
        total = memory.total if memory is not None else math.inf
        if each.memory is not None and not 0 <= each.memory <= total:
            raise BrokenPromiseError(f"a process has {each.memory} of {total} bytes")
