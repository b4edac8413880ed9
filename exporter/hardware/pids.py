"""Whose numbers the pids are that a driver tells: the machine's, or those of whoever asks.

``exporter.pid_namespace`` tells whether the two are the same.
"""

from typing import Final, NamedTuple

from exporter.model import GpuReading
from exporter.model.records import replace

# NVIDIA's drivers whose kernel module speaks of the asking process's pids, in its lists and in its samples.
LISTS_SINCE: Final = 535
SAMPLES_SINCE: Final = 570
OTHER_PIDS: Final = "this driver speaks of the machine's pids, and those under --proc-root are others"


class Trust(NamedTuple):
    """Whether the pids in a driver's lists of processes and in its samples of them are ours."""

    lists: bool = True
    samples: bool = True


def trust(driver_version: str | None, *, machine: bool) -> Trust:
    """Say what can be trusted of a driver of NVIDIA's; ``machine``: our pids are those of the machine."""
    if machine:
        return Trust()
    branch = (driver_version or "").partition(".")[0]
    number = int(branch) if branch.isdecimal() else 0
    return Trust(lists=number >= LISTS_SINCE, samples=number >= SAMPLES_SINCE)


def without_others(reading: GpuReading, told: Trust) -> GpuReading:
    """Leave out what names processes by numbers that mean others here."""
    if told == Trust():
        return reading
    if not told.lists:
        mig = reading.mig and tuple(replace(device, processes=None) for device in reading.mig)
        reading = replace(reading, processes=None, mig=mig)
    if not told.samples:
        reading = replace(reading, process_utilization=None)
    return replace(reading, withheld={**reading.withheld, "processes": OTHER_PIDS})
