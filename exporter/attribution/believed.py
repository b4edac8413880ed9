"""What a driver says of processes, held against what it says of the device: two answers that cannot both be.

Some drivers answer that there are no processes, or that none computed, where they cannot tell. That proves of
nobody that it uses nothing.
"""

from collections.abc import Mapping, Sequence

from exporter.model import DeviceProcess, GpuReading, Memory, MigReading

# What a driver needs for itself: a fixed part and, for its tables, one that goes with the memory.
OVERHEAD_BYTES, OVERHEAD_SHARE = 1 << 30, 1 / 32
# A device is averaged over another stretch of time than its processes.
BUSY = 0.1


def lists_users(processes: Sequence[DeviceProcess] | None, memory: Memory | None) -> bool:
    """Whether a list can have all users of a device: it is not empty where more is used than by a driver."""
    if processes or memory is None:
        return True
    return memory.used <= OVERHEAD_BYTES + memory.total * OVERHEAD_SHARE


def lists_users_of(gpu: GpuReading, mig: MigReading) -> bool:
    """Whether the list of a MIG device can have all its users, who may share the memory of their instance.

    What is used there may be theirs whose devices do not tell their processes.
    """
    if not mig.memory_shared:
        return lists_users(mig.processes, mig.memory)
    lists = [each.processes for each in gpu.mig or () if each.gi == mig.gi]
    known = [process for processes in lists for process in processes or ()]
    return not gpu.mig_complete or None in lists or lists_users(known, mig.memory)


def believed(
    utilization: Mapping[int, float | None] | None, compute: float | None
) -> Mapping[int, float | None] | None:
    """Return who computed, or None where nobody is said to have on a device that was busy."""
    silent = utilization is not None and not any(utilization.values())
    return None if silent and compute is not None and compute >= BUSY else utilization
