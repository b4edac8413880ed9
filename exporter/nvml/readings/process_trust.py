"""Whether what a driver reports about processes can be used: pids of other namespaces, hidden processes."""

from dataclasses import replace
from typing import Final, NamedTuple

from exporter.model import DriverInfo, GpuReading
from exporter.model.poll_result import CONFIDENTIAL_LISTS, OTHER_PIDS
from exporter.model.xids import branch_of

MODE_UNKNOWN: Final = "the driver did not report whether confidential computing hides processes"
# NVIDIA drivers that report pids of the caller's namespace, in their lists and in their samples.
LISTS_SINCE: Final = 535
SAMPLES_SINCE: Final = 570


class ListTrust(NamedTuple):
    """Whether what a driver reports about processes can be used."""

    # Whether the pids in its lists, and in its samples, are those of the exporter.
    lists: bool = True
    samples: bool = True
    hidden: str = ""  # why an empty list proves nothing: the driver may hide processes; "" if it does not


def list_trust(driver: DriverInfo, *, machine: bool, mode_failed: bool) -> ListTrust:
    """Return the trust in an NVIDIA driver.

    ``machine``: the exporter has the machine's pids. ``mode_failed``: the mode of confidential computing is
    unknown; in that mode, processes are hidden unless developer tools are allowed.
    """
    hidden = MODE_UNKNOWN if mode_failed else ""
    mode = driver.confidential
    if mode is not None and mode.enabled and not mode.developer_tools:
        hidden = CONFIDENTIAL_LISTS
    number = branch_of(driver.driver_version) or 0
    return ListTrust(machine or number >= LISTS_SINCE, machine or number >= SAMPLES_SINCE, hidden)


def trusted(reading: GpuReading, trust: ListTrust) -> GpuReading:
    """Return a reading without the processes and samples that cannot be used, and why they are unknown."""
    if not (trust.lists and trust.samples):
        if not trust.lists:
            mig = tuple(replace(device, processes=None) for device in reading.mig or ())
            reading = replace(reading, processes=None, mig=None if reading.mig is None else mig)
        if not trust.samples:
            reading = replace(reading, process_utilization=None)
        reading = replace(reading, withheld={**reading.withheld, "processes": OTHER_PIDS})
    return _without_empty_lists(reading, trust.hidden) if trust.hidden else reading


def _without_empty_lists(reading: GpuReading, why: str) -> GpuReading:
    """Return the reading of a GPU whose driver may hide processes: an empty list is then unknown, and why."""
    mig = reading.mig and tuple(
        replace(device, processes=None) if device.processes == () else device for device in reading.mig
    )
    if reading.processes != () and mig == reading.mig:
        return reading
    withheld = {**reading.withheld, "processes": why}
    reading = replace(reading, mig=mig, withheld=withheld)
    return reading if reading.processes else replace(reading, processes=None, process_utilization=None)
