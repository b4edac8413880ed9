"""Functions of the fake driver about MIG: whether a GPU is cut, and what a MIG device is."""

import ctypes
from collections.abc import Mapping
from functools import partial
from typing import Any

from exporter.demo.machine import ProcessState, Sample
from exporter.demo.nvml.board import GPU_INSTANCE, Device, GpuDevice, MigDevice
from exporter.demo.nvml.call import (
    INSUFFICIENT_SIZE,
    NOT_FOUND,
    NOT_SUPPORTED,
    Function,
    number,
    numbers,
    put,
    put_handle,
    refuse,
    target,
)
from exporter.demo.scenario.derive import engines, gi_profile
from exporter.demo.scenario.gpus import MIB
from exporter.model.hardware import ProcessKind


def _mode(device: GpuDevice) -> tuple[int, int]:
    if device.state.gpu.mig is None:
        return refuse(NOT_SUPPORTED)
    enabled = int(device.state.is_cut)
    return enabled, enabled


def _max_count(device: GpuDevice) -> int:
    mig = device.state.gpu.mig
    return mig.max_slices if mig and mig.enabled else 0


def _attributes(device: MigDevice, reference: Any) -> None:
    cut = device.state.instance
    answer = target(reference)
    answer.multiprocessorCount = cut.multiprocessors
    has = engines(device.gpu.gpu, cut)
    answer.sharedCopyEngineCount = has.get("copy", 0)
    answer.sharedDecoderCount = has.get("decoder", 0)
    answer.sharedEncoderCount = has.get("encoder", 0)
    answer.sharedJpegCount = has.get("jpeg", 0)
    answer.sharedOfaCount = has.get("ofa", 0)
    answer.gpuInstanceSliceCount = cut.gi_slices
    answer.computeInstanceSliceCount = cut.compute_slices
    answer.memorySizeMB = cut.memory_bytes // MIB


def _gpu_instance(device: GpuDevice, gi: Any, reference: Any) -> int | None:
    inside = (mig for mig in device.migs.values() if mig.state.instance.gi == number(gi))
    first = min(inside, key=lambda mig: mig.address, default=None)
    if first is None:
        return NOT_FOUND
    put_handle(reference, first.address + GPU_INSTANCE)
    return None


def _gpu_instance_info(device: MigDevice, reference: Any) -> int | None:
    cut = device.state.instance
    profile = gi_profile(device.gpu.gpu, cut)
    if profile is None:
        return NOT_SUPPORTED
    answer = target(reference)
    answer.device = ctypes.cast(device.parent_address, type(answer.device))
    answer.id, answer.profileId = cut.gi, profile
    answer.placement.start, answer.placement.size = cut.start, cut.size
    return None


FUNCTIONS: Mapping[str, Function] = {
    "nvmlDeviceGetMigMode": numbers("gpu", _mode),
    "nvmlDeviceGetMaxMigDeviceCount": numbers("gpu", _max_count),
    "nvmlDeviceIsMigDeviceHandle": numbers("any", lambda device: int(isinstance(device, MigDevice))),
    "nvmlDeviceGetGpuInstanceId": numbers("mig", lambda device: device.state.instance.gi),
    "nvmlDeviceGetComputeInstanceId": numbers("mig", lambda device: device.state.instance.ci),
    "nvmlDeviceGetAttributes_v2": Function("mig", _attributes),
    "nvmlDeviceGetGpuInstanceById": Function("gpu", _gpu_instance),
    "nvmlGpuInstanceGetInfo": Function("gpu instance", _gpu_instance_info),
}


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
        cut = state.instance
        info.gpuInstanceId, info.computeInstanceId = (cut.gi, cut.ci) if cut else (NO_INSTANCE, NO_INSTANCE)


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


PROCESS_FUNCTIONS: Mapping[str, Function] = {
    **_lists(),
    "nvmlDeviceGetProcessUtilization": Function("gpu", _utilization),
}
