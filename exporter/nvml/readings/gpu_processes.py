"""Processes of a device: contexts, and compute use since the last poll."""

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

# Instance id of a process that does not run on a MIG device.
NO_INSTANCE = 0xFFFFFFFF
_NAMES: Mapping[ProcessKind, str] = {
    "compute": "nvmlDeviceGetComputeRunningProcesses",
    "graphics": "nvmlDeviceGetGraphicsRunningProcesses",
    "mps": "nvmlDeviceGetMPSComputeRunningProcesses",
}
# The unversioned names of the binding call _v3 and refuse drivers without it.
LISTS = tuple((kind, (name, f"{name}_v2")) for kind, name in _NAMES.items())
_KINDS = {kind: frozenset({kind}) for kind in _NAMES}
UTILIZATION = "nvmlDeviceGetProcessUtilization"
# The largest pid of Linux; 0 is not a pid.
GREATEST_PID = 1 << 22


class InstanceIds(NamedTuple):
    """Ids of a MIG device, and which processes it may have."""

    gi: int
    ci: int
    # All GPU instances of the GPU; empty if unknown.
    gpu_instances: Collection[int] = ()
    # Whether to read the list of graphics processes.
    graphics: bool = True


def running(
    calls: Calls, device: str, handle: Any, total_memory: int | None, instance: InstanceIds | None = None
) -> tuple[DeviceProcess, ...] | None:
    """Return the processes with a context, one entry per pid; None if the list may be incomplete.

    ``total_memory`` is that of the device in bytes. With ``instance``, only the processes of that MIG device
    are returned: some drivers also list others of the same GPU instance. A list with instances that the GPU
    does not have is not plausible, and unknown. Raises as ``Calls.ask`` does.
    """
    processes: dict[int, DeviceProcess] = {}
    any_compute = False
    for kind, names in LISTS:
        # A client of MPS has a server, which has a compute context on the device.
        if (kind == "mps" and not any_compute) or (kind == "graphics" and instance and not instance.graphics):
            continue
        failures = calls.failures()
        entries = _list(calls, device, handle, names)
        if entries is None and (kind == "compute" or calls.failures() > failures):
            return None
        if not _is_plausible(entries or (), instance):
            calls.count(device, names[0], "ImpossibleInstance")
            return None
        for entry in _of_instance(entries or (), instance):
            _add(processes, kind, entry, total_memory)
        if kind == "compute":
            # Also of another instance, as some drivers list those.
            any_compute = bool(entries)
    return tuple(sorted(processes.values(), key=lambda process: process.pid))


def _list(calls: Calls, device: str, handle: Any, names: Sequence[str]) -> Iterable[Any] | None:
    """Return a list from the newest call that this driver fills as the binding decodes it.

    Early drivers of one branch have longer records in _v3, so that all but the first are decoded at the wrong
    place. That shows in impossible pids.
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


def _is_plausible(entries: Iterable[Any], instance: InstanceIds | None) -> bool:
    """Return whether the GPU has all instances in a list; some drivers leave their ids at zero."""
    if instance is None or not instance.gpu_instances:
        return True
    return all(
        entry.gpuInstanceId == NO_INSTANCE or entry.gpuInstanceId in instance.gpu_instances
        for entry in entries
    )


def _of_instance(entries: Iterable[Any], instance: InstanceIds | None) -> Iterable[Any]:
    if instance is None:
        return entries
    gi, ci = (NO_INSTANCE, instance.gi), (NO_INSTANCE, instance.ci)
    return [entry for entry in entries if entry.gpuInstanceId in gi and entry.computeInstanceId in ci]


def without_doubles(devices: Sequence[MigReading]) -> Iterator[MigReading]:
    """Yield the MIG devices; without processes if several of one GPU instance list the same process.

    A process runs on one compute instance only, but drivers without instance ids in a list may list all
    processes of the GPU instance.
    """
    listed = Counter((device.gi, process.pid) for device in devices for process in device.processes or ())
    for device in devices:
        ambiguous = any(listed[device.gi, process.pid] > 1 for process in device.processes or ())
        yield replace(device, processes=None) if ambiguous else device


def _add(processes: dict[int, DeviceProcess], kind: ProcessKind, entry: Any, total: int | None) -> None:
    """Add a process; one in several lists has one context, and so one memory figure."""
    pid, memory, kinds = entry.pid, entry.usedGpuMemory, _KINDS[kind]
    if memory is not None and total is not None and memory > total:
        # A record of another length, as sent by early drivers of one branch.
        memory = None
    known = processes.get(pid)
    if known is not None:
        figures = [figure for figure in (known.memory, memory) if figure is not None]
        memory, kinds = max(figures, default=None), kinds | known.kinds
    processes[pid] = DeviceProcess(pid=pid, memory=memory, kinds=kinds)


class UtilizationReader:
    """Reads the compute use of each process since the last poll; ``clock`` as for SampleReader."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._samples = SampleReader(clock)

    def read(
        self, calls: Calls, uuid: str, handle: Any, listed: Iterable[DeviceProcess] | None
    ) -> dict[int, int | None] | None:
        """Return percent of time with a kernel running by pid; absent pids did not run.

        A value of None is unknown; the result is None if all are. ``listed`` are the processes of the GPU.
        The first read of a GPU covers the driver's buffer (some seconds). Raises as ``Calls.ask`` does.
        """
        samples = self._samples.read(calls, uuid, handle, UTILIZATION)
        if samples is None:
            return None
        latest = latest_time()
        # Some drivers add empty samples. Oldest first, so that the newest of several samples of a pid
        # remains.
        percents = {
            sample.pid: sampled_percent(sample.smUtil)
            if sample.pid <= GREATEST_PID and sample.timeStamp <= latest
            else None
            for sample in samples
            if sample.pid
        }
        if None not in percents.values():
            return percents
        # Any process may be missing in garbage: drivers have filled whole answers with it.
        calls.count(uuid, UTILIZATION, "ImpossibleSample")
        return {process.pid: None for process in listed or ()} | percents

    def forget(self, known: Iterable[str]) -> None:
        """Keep the state of these GPUs only."""
        self._samples.forget(known)


# NVIDIA drivers that report pids of the caller's namespace, in their lists and in their samples.
LISTS_SINCE: Final = 535
SAMPLES_SINCE: Final = 570


class PidTrust(NamedTuple):
    """Whether the pids in a driver's lists of processes, and in its samples, are those of the exporter."""

    lists: bool = True
    samples: bool = True


def pid_trust(driver_version: str | None, *, machine: bool) -> PidTrust:
    """Return the trust in the pids of an NVIDIA driver; ``machine``: the exporter has the machine's pids."""
    if machine:
        return PidTrust()
    branch = (driver_version or "").partition(".")[0]
    number = int(branch) if branch.isdecimal() else 0
    return PidTrust(lists=number >= LISTS_SINCE, samples=number >= SAMPLES_SINCE)


def without_foreign_pids(reading: GpuReading, trust: PidTrust) -> GpuReading:
    """Return a reading without processes and samples with pids of another namespace."""
    if trust == PidTrust():
        return reading
    if not trust.lists:
        mig = reading.mig and tuple(replace(device, processes=None) for device in reading.mig)
        reading = replace(reading, processes=None, mig=mig)
    if not trust.samples:
        reading = replace(reading, process_utilization=None)
    return replace(reading, withheld={**reading.withheld, "processes": OTHER_PIDS})
