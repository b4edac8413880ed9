"""The processes of a device: who has a context on it, and who computed since the last poll."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from exporter.model import DeviceProcess, GpuReading, MigReading
from exporter.model.hardware import ProcessKind
from exporter.model.pid_namespace import OTHER_PIDS
from exporter.nvml.driver.calls import Calls
from exporter.nvml.readings.answers import sampled_percent
from exporter.nvml.readings.samples import SampleReader, latest_time

# In the field of an instance id: this process runs on no MIG device.
NO_INSTANCE = 0xFFFFFFFF
_NAMES: Mapping[ProcessKind, str] = {
    "compute": "nvmlDeviceGetComputeRunningProcesses",
    "graphics": "nvmlDeviceGetGraphicsRunningProcesses",
    "mps": "nvmlDeviceGetMPSComputeRunningProcesses",
}
# The unversioned names of the binding stand for _v3 and refuse drivers without it.
LISTS = tuple((kind, (name, f"{name}_v2")) for kind, name in _NAMES.items())
_KINDS = {kind: frozenset({kind}) for kind in _NAMES}
UTILIZATION = "nvmlDeviceGetProcessUtilization"
# Linux gives no process a greater number, and none 0.
GREATEST_PID = 1 << 22


class Instance(NamedTuple):
    """The ids of a MIG device; ``gpu_instances`` are those of all that the GPU has, where these are known."""

    gi: int
    ci: int
    gpu_instances: Collection[int] = ()


def running(
    calls: Calls, device: str, handle: Any, total_memory: int | None, instance: Instance | None = None
) -> tuple[DeviceProcess, ...] | None:
    """List the processes with a context, one entry per pid, or None when the list may be incomplete.

    ``instance`` keeps the processes of one MIG device: some drivers list those of its neighbours in the same
    GPU instance too. A list with others than the GPU has is none.
    """
    found: dict[int, DeviceProcess] = {}
    for kind, names in LISTS:
        failures = calls.failures()
        entries = _list(calls, device, handle, names)
        if entries is None and (kind == "compute" or calls.failures() > failures):
            return None
        if not _may_be_there(entries or (), instance):
            calls.count(device, names[0], "ImpossibleInstance")
            return None
        for entry in _of_instance(entries or (), instance):
            _add(found, kind, entry, total_memory)
    return tuple(sorted(found.values(), key=lambda process: process.pid))


def _list(calls: Calls, device: str, handle: Any, names: Sequence[str]) -> Iterable[Any] | None:
    """Ask for a list in the newest form that this driver fills as the binding reads it.

    Early drivers of one branch have longer records in _v3. From the second one on they are read at the wrong
    place, which shows in numbers that no process has.
    """
    for name in names:
        entries: Iterable[Any] | None = calls.ask(device, name, handle)
        if entries is None:
            if calls.supports(device, name):
                return None
            continue
        if all(0 < entry.pid <= GREATEST_PID for entry in entries):
            return entries
        calls.count(device, name, "ImpossiblePid")
        if name != names[-1]:
            calls.refused(device, name)
    return None


def _may_be_there(entries: Iterable[Any], instance: Instance | None) -> bool:
    """Whether the GPU has the instances of all of a list: a driver that leaves ids at zero tells none."""
    if instance is None or not instance.gpu_instances:
        return True
    return all(
        entry.gpuInstanceId == NO_INSTANCE or entry.gpuInstanceId in instance.gpu_instances
        for entry in entries
    )


def _of_instance(entries: Iterable[Any], instance: Instance | None) -> Iterable[Any]:
    if instance is None:
        return entries
    gi, ci = (NO_INSTANCE, instance.gi), (NO_INSTANCE, instance.ci)
    return [entry for entry in entries if entry.gpuInstanceId in gi and entry.computeInstanceId in ci]


def without_doubles(devices: Sequence[MigReading]) -> Iterator[MigReading]:
    """Take the lists from compute instances of one GPU instance that have a process in common.

    A process runs on one of them only: drivers that tell no ids in a list may list all of the GPU instance.
    """
    seen = Counter((device.gi, each.pid) for device in devices for each in device.processes or ())
    for device in devices:
        doubled = any(seen[device.gi, each.pid] > 1 for each in device.processes or ())
        yield replace(device, processes=None) if doubled else device


def _add(found: dict[int, DeviceProcess], kind: ProcessKind, entry: Any, total: int | None) -> None:
    """Enter a process once: a pid that stands in several lists has one context and one memory figure."""
    pid, memory, kinds = entry.pid, _believable(entry.usedGpuMemory, total), _KINDS[kind]
    known = found.get(pid)
    if known is not None:
        figures = [figure for figure in (known.memory, memory) if figure is not None]
        memory, kinds = max(figures, default=None), kinds | known.kinds
    found[pid] = DeviceProcess(pid=pid, memory=memory, kinds=kinds)


def _believable(memory: int | None, total: int | None) -> int | None:
    """Drop a figure larger than the device: early drivers of one branch sent records of another length."""
    if memory is None or (total is not None and memory > total):
        return None
    return int(memory)


class UtilizationReader:
    """Reads what each process computed since the last poll; ``clock`` as for samples."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._samples = SampleReader(clock)

    def read(
        self, calls: Calls, uuid: str, handle: Any, listed: Iterable[DeviceProcess] | None
    ) -> dict[int, int | None] | None:
        """Return percent of time with a kernel running by pid; a pid that is not in it did not run.

        None when the driver cannot tell, of one pid or of all. ``listed`` are the processes of the GPU.
        The first read of a GPU covers the driver's own buffer (some seconds), each later one the time since
        the read before.
        """
        fresh = self._samples.read(calls, uuid, handle, UTILIZATION)
        if fresh is None:
            return None
        latest = latest_time()
        # Some drivers add empty samples. Oldest first, so that the newest of two samples of a pid stays.
        figures = {each.pid: _percent(each, latest) for each in fresh if each.pid}
        if None not in figures.values():
            return figures
        # Garbage may stand in the place of any other: drivers have filled whole answers with it.
        calls.count(uuid, UTILIZATION, "ImpossibleSample")
        return {process.pid: None for process in listed or ()} | figures

    def forget(self, known: Iterable[str]) -> None:
        """Keep the time stamps of these GPUs only."""
        self._samples.forget(known)


def _percent(sample: Any, latest: int) -> int | None:
    possible = sample.pid <= GREATEST_PID and sample.timeStamp <= latest
    return sampled_percent(sample.smUtil) if possible else None


# NVIDIA's drivers whose kernel module speaks of the asking process's pids, in its lists and in its samples.
LISTS_SINCE: Final = 535
SAMPLES_SINCE: Final = 570


class Trust(NamedTuple):
    """Whether the pids in a driver's lists of processes and in its samples of them are ours."""

    lists: bool = True
    samples: bool = True


def trust(driver_version: str | None, *, machine: bool) -> Trust:
    """Return what can be trusted of a driver of NVIDIA's; ``machine``: our pids are those of the machine."""
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
