"""Functions of the fake driver about processes: who has a context on a device, and how busy it keeps it.

Since R535 a caller outside the host's pid namespace gets empty lists; the samples of process utilization
carry the host's pids all the same.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from exporter.demo.machine import ProcessState, Sample
from exporter.demo.nvml_board import Device, GpuDevice
from exporter.demo.nvml_call import Function, number, put, target
from exporter.demo.nvml_codes import INSUFFICIENT_SIZE, NOT_FOUND, NOT_SUPPORTED
from exporter.model.hardware import ProcessKind

NOT_AVAILABLE = 2**64 - 1
NO_INSTANCE = 0xFFFFFFFF


def _list(kind: ProcessKind, device: Device, count: Any, infos: Any) -> int | None:
    seen = device.state.processes if device.lists_pids else ()
    found = [state for state in seen if state.running.process.kind == kind]
    room = 0 if infos is None else number(target(count))
    put(count, len(found))
    if len(found) > room:
        return INSUFFICIENT_SIZE
    for place, state in enumerate(found):
        _fill(infos[place], state)
    return None


def _fill(info: Any, state: ProcessState) -> None:
    info.pid = state.pid
    info.usedGpuMemory = state.memory if state.told else NOT_AVAILABLE
    if hasattr(info, "gpuInstanceId"):
        info.gpuInstanceId, info.computeInstanceId = _instance(state)


def _instance(state: ProcessState) -> tuple[int, int]:
    cut = state.instance
    return (cut.gi, cut.ci) if cut else (NO_INSTANCE, NO_INSTANCE)


def _utilization(device: GpuDevice, answers: Any, count: Any, last_seen: Any) -> int | None:
    if device.state.is_cut:
        return NOT_SUPPORTED
    records = newer(device.state.samples, number(last_seen))
    if not records:
        return NOT_FOUND
    room = 0 if answers is None else number(target(count))
    put(count, len(records))
    if len(records) > room:
        return INSUFFICIENT_SIZE
    for place, (pid, (timestamp, sm)) in enumerate(records.items()):
        answer = answers[place]
        answer.pid, answer.timeStamp, answer.smUtil, answer.memUtil = pid, timestamp, sm, sm // 2
        answer.encUtil = answer.decUtil = 0
    return None


def newer(samples: tuple[Sample, ...], last_seen: int) -> dict[int, tuple[int, int]]:
    """Return pid → (time of its last activity in microseconds, mean percent) over the newer samples.

    Who did nothing in them has no record.
    """
    window = [sample for sample in samples if sample.timestamp > last_seen]
    records: dict[int, tuple[int, int]] = {}
    for pid in sorted({pid for sample in window for pid, sm in sample.sm.items() if sm}):
        total = sum(sample.sm.get(pid, 0) for sample in window)
        latest = max(sample.timestamp for sample in window if sample.sm.get(pid))
        records[pid] = latest, max(1, round(total / len(window)))
    return records


def _lists() -> dict[str, Function]:
    names: dict[str, ProcessKind] = {"Compute": "compute", "Graphics": "graphics", "MPSCompute": "mps"}
    return {
        f"nvmlDeviceGet{name}RunningProcesses{version}": Function("any", partial(_list, kind))
        for name, kind in names.items()
        for version in ("", "_v2", "_v3")
    }


FUNCTIONS: Mapping[str, Function] = {
    **_lists(),
    "nvmlDeviceGetProcessUtilization": Function("gpu", _utilization),
}
