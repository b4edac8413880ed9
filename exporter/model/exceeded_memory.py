"""GPUs whose processes use more memory than their driver's total, as if they share that of the machine."""

from collections.abc import Iterable
from dataclasses import replace

from exporter.model.hardware import DeviceProcess, GpuReading
from exporter.model.readings import Memory

WHY = "not supported: a process uses more memory than the driver's total, which is of other memory then"


def without_exceeded_memory(reading: GpuReading) -> GpuReading:
    """Return a reading without the memory of each device of which a process has more than the total.

    The total, and what is left of it, are then not those that processes allocate from.
    """
    if reading.mig:
        mig = tuple(
            replace(device, memory=None) if _is_exceeded(device.memory, device.processes) else device
            for device in reading.mig
        )
        if mig != reading.mig:
            reading = replace(reading, mig=mig, withheld={**reading.withheld, "memory": WHY})
    if _is_exceeded(reading.memory, reading.processes):
        reading = replace(reading, memory=None, withheld={**reading.withheld, "memory": WHY})
    return reading


def _is_exceeded(memory: Memory | None, processes: Iterable[DeviceProcess] | None) -> bool:
    if memory is None:
        return False
    return any(process.memory is not None and process.memory > memory.total for process in processes or ())
