"""Processes of a device: contexts, compute use since the last poll, and whether the driver shows them."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from exporter.model import DeviceProcess, DriverInfo, GpuReading, Memory, MigReading
from exporter.model.bounds import BYTES
from exporter.model.hardware import ProcessKind
from exporter.model.poll_result import CONFIDENTIAL_LISTS, OTHER_PIDS
from exporter.model.xids import branch_of
from exporter.nvml.driver.binding import NO_INSTANCE, PROCESS_LISTS
from exporter.nvml.driver.calls import Calls
from exporter.nvml.driver.records import Call
from exporter.nvml.readings.answers import believed, keep_only, sampled_percent
from exporter.nvml.readings.samples import IMPOSSIBLE_SAMPLE, SampleReader, latest_time

# The unversioned names of the binding call _v3 and refuse drivers without it.
LISTS: tuple[tuple[ProcessKind, tuple[Call, ...]], ...] = tuple(
    (kind, ((name, ()), (f"{name}_v2", ()), ("nvmlDeviceGetRunningProcessDetailList", (mode,))))
    for mode, (kind, name) in enumerate(PROCESS_LISTS.items())
)
_KINDS = {kind: frozenset({kind}) for kind in PROCESS_LISTS}
# Newer drivers support only the second one on some GPUs: https://github.com/Project-HAMi/HAMi-core/pull/218.
UTILIZATION: tuple[Call, ...] = (
    ("nvmlDeviceGetProcessUtilization", ()),
    ("nvmlDeviceGetProcessesUtilizationInfo", ()),
)
# The largest pid of Linux; 0 is not a pid.
GREATEST_PID = 1 << 22
MODE_UNKNOWN: Final = "the driver did not report whether confidential computing hides processes"
# NVIDIA drivers that report pids of the caller's namespace, in their lists and in their samples.
LISTS_SINCE: Final = 535
SAMPLES_SINCE: Final = 570


class InstanceIds(NamedTuple):
    """Ids of a MIG device, and which processes it may have."""

    gi: int
    ci: int
    gpu_instances: Collection[int] = ()  # all GPU instances of the GPU; empty if unknown
    graphics: bool = True  # whether to read the list of graphics processes


class ProcessLists:
    """Reads the processes of devices, without the list of MPS clients where there can be none.

    A client has memory of the device. So there is none while the device uses no more than it did when all of
    its lists were empty. The server of a client may be in no list: it can run in another namespace.
    """

    def __init__(self) -> None:
        # Bytes in use without any process, by device.
        self._unused: dict[str, int] = {}

    def read(
        self,
        calls: Calls,
        device: str,
        handle: Any,
        memory: Memory | None,
        instance: InstanceIds | None = None,
    ) -> tuple[DeviceProcess, ...] | None:
        """Return the processes as ``running`` does; ``memory`` is that of the device in this sweep."""
        used = memory.used if memory is not None else None
        without = self._unused.get(device)
        clients = used is None or without is None or used > without
        processes = running(calls, device, handle, instance, clients=clients)
        if processes == () and clients and used is not None:
            self._unused[device] = used
        return processes

    def keep_only(self, devices: Collection[str]) -> None:
        """Forget other devices."""
        keep_only(devices, self._unused)


def running(
    calls: Calls, device: str, handle: Any, instance: InstanceIds | None = None, *, clients: bool = True
) -> tuple[DeviceProcess, ...] | None:
    """Return the processes with a context, one entry per pid; None if the list may be incomplete.

    Without ``clients``, those of MPS are listed only next to a compute process, which may be their server.

    With ``instance``, only the processes of that MIG device are returned: some drivers also list others of
    the same GPU instance. A list with instances that the GPU does not have is not plausible, and unknown.
    Raises as ``Calls.ask`` does.
    """
    processes: dict[int, DeviceProcess] = {}
    for kind, forms in LISTS:
        if (kind == "mps" and not clients) or (kind == "graphics" and instance and not instance.graphics):
            continue
        failures = calls.records.failures
        entries = _list(calls, device, handle, forms)
        if entries is None and (kind == "compute" or calls.records.failures > failures):
            return None
        if not _is_plausible(entries or (), instance):
            calls.count(device, forms[0][0], "ImpossibleInstance")
            return None
        for entry in _of_instance(entries or (), instance):
            memory = believed(calls, device, forms[0][0], entry.usedGpuMemory, BYTES)
            _add(processes, kind, entry.pid, memory)
        # Also of another instance, as some drivers list those.
        clients = clients or bool(entries)
    return tuple(sorted(processes.values(), key=lambda process: process.pid))


def _list(calls: Calls, device: str, handle: Any, forms: Sequence[Call]) -> Iterable[Any] | None:
    """Return a list from the first call that this driver fills as the binding decodes it.

    Early drivers of one branch have longer records in _v3, so that all but the first are decoded at the wrong
    place. That shows in impossible pids.
    """
    garbled: list[Call] = []
    for name, arguments in forms:
        entries: Iterable[Any] | None = calls.ask(device, name, handle, *arguments)
        if entries is None:
            if calls.supports(device, name, *arguments):
                return None
        elif all(0 < entry.pid <= GREATEST_PID for entry in entries):
            for call, given in garbled:
                calls.refused(device, call, *given)
            return entries
        else:
            calls.count(device, name, "ImpossiblePid")
            garbled.append((name, arguments))
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


def _add(processes: dict[int, DeviceProcess], kind: ProcessKind, pid: int, memory: int | None) -> None:
    """Add a process; one in several lists has one context, and so one memory figure."""
    kinds, known = _KINDS[kind], processes.get(pid)
    if known is not None:
        figures = [figure for figure in (known.memory, memory) if figure is not None]
        memory, kinds = max(figures, default=None), kinds | known.kinds
    processes[pid] = DeviceProcess(pid=pid, memory=memory, kinds=kinds)


def read_utilization(
    reader: SampleReader, calls: Calls, uuid: str, handle: Any, listed: Iterable[DeviceProcess] | None
) -> dict[int, int | None] | None:
    """Return percent of time with a kernel running, since the last poll, by pid; absent pids did not run.

    A value of None is unknown; the result is None if all are. ``listed`` are the processes of the GPU.
    The first read of a GPU covers the driver's buffer (some seconds). Raises as ``Calls.ask`` does.
    """
    samples = reader.read(calls, uuid, handle, UTILIZATION)
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
    calls.count(uuid, calls.form(uuid, UTILIZATION), IMPOSSIBLE_SAMPLE)
    return {process.pid: None for process in listed or ()} | percents


class ListTrust(NamedTuple):
    """Whether what a driver reports about processes can be used."""

    # Whether the pids in its lists, and in its samples, are those of the exporter.
    lists: bool = True
    samples: bool = True
    accounts: bool = True  # whether the pids of its accounting are
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
    return ListTrust(machine or number >= LISTS_SINCE, machine or number >= SAMPLES_SINCE, machine, hidden)


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
    reading = replace(reading, mig=mig, withheld={**reading.withheld, "processes": why})
    return reading if reading.processes else replace(reading, processes=None, process_utilization=None)
