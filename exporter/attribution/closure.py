"""What is proven of the processes on a device: the one place that tells an observed zero from the unknown.

That nothing matched proves no zero. A container uses nothing of a device only if every process there has a
known place elsewhere (rule 4 of ``docs/join.md``).
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from exporter.attribution.audit import accounted, has_ended
from exporter.attribution.owners import Owned
from exporter.attribution.use import DeviceReading, Use
from exporter.model import ContainerRef, DeviceProcess, ProcessPlace, Workloads

# Source of a figure that is the sum over processes.
PROCESS: Final = "process"


class Closure(NamedTuple):
    """Whether the processes on a device are known, so that a container without use there has none."""

    listed: bool  # the lists of this poll have all processes, and pods have names
    # Every process with memory has a known place, and so has every one that computed since the last poll.
    memory: bool
    compute: bool

    def observed(self, use: Use) -> Use:
        """Return a use without zeros that are not proven; a meter of the device has observed its own."""
        listed = self.listed or bool(use.processes)
        if (use.memory, use.memory_source) == (0, PROCESS) and not (listed and self.memory):
            use = replace(use, memory=None, memory_source="none")
        if (use.compute, use.compute_source) == (0, PROCESS) and not (listed and self.compute):
            use = replace(use, compute=None, compute_source="none")
        if use.processes == 0 and not (listed and self.memory):
            use = replace(use, processes=None)
        return use


def closure_of(device: DeviceReading, owned: Owned, workloads: Workloads) -> Closure:
    """Return what is proven of a device whose processes have these owners."""
    computed = {pid for pid, percent in (device.utilization or {}).items() if percent != 0}
    return Closure(
        listed=workloads.pods is not None and device.fresh and device.lists_all,
        memory=all(process.memory == 0 and not process.kinds for process in owned.unknown),
        compute=not any(process.kinds or process.pid in computed for process in owned.unknown),
    )


def related(owned: Owned, places: Mapping[int, ProcessPlace]) -> set[ContainerRef]:
    """Return the containers with processes that may also own one whose place is unknown: those of its kin."""
    kin = {uid for process in owned.unknown if process.pid in places for uid in places[process.pid].kin}
    return {owner for owner, uid in owned.pod_uids.items() if uid in kin}


def with_unlisted(device: DeviceReading, workloads: Workloads) -> DeviceReading:
    """Return a device with the processes that computed and are in no list of it, apart from the others.

    A process that has ended has no memory. One that ended between the list and the reading of its place is
    not listed by a second list.
    """
    listed = device.processes or ()
    gone = [process for process in listed if process.pid in workloads.gone]
    kept = tuple(process for process in listed if process.pid not in workloads.gone)
    known = {process.pid for process in kept}
    computed = {pid for pid, percent in (device.utilization or {}).items() if percent and pid not in known}
    pids = computed | {process.pid for process in gone} | (set(accounted(device)) - known)
    return replace(device, processes=kept, unlisted=tuple(_unlisted(device, pids, workloads.places)))


def _unlisted(
    device: DeviceReading, pids: Iterable[int], places: Mapping[int, ProcessPlace]
) -> Iterable[DeviceProcess]:
    for pid in sorted(pids):
        place = places.get(pid)
        ended = (place is not None and place.ended) or has_ended(device, pid)
        yield DeviceProcess(pid=pid, memory=0 if ended else None, kinds=frozenset())
