"""Functions of the fake driver about MIG: whether a GPU is cut, and what a MIG device is."""

import ctypes
from collections.abc import Mapping
from functools import partial
from typing import Any

from exporter.demo.machine import Sample
from exporter.demo.nvml.board import GPU_INSTANCE, Device, GpuDevice, MigDevice
from exporter.demo.nvml.call import (
    NOT_FOUND,
    Function,
    known,
    number,
    numbers,
    put_handle,
    put_length,
    require,
    target,
)
from exporter.demo.scenario.derive import engines, gi_profile
from exporter.demo.scenario.gpus import MIB
from exporter.model.hardware import ProcessKind


def _mode(device: GpuDevice) -> tuple[int, int]:
    require(device.spec.mig)
    enabled = int(device.state.is_cut)
    return enabled, enabled


def _max_count(device: GpuDevice) -> int:
    mig = device.spec.mig
    return mig.max_slices if mig and mig.enabled else 0


def _attributes(device: MigDevice, reference: Any) -> None:
    cut, answer = device.spec, target(reference)
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


def _gpu_instance(device: GpuDevice, gi: Any, reference: Any) -> None:
    inside = (mig for mig in device.migs.values() if mig.state.instance.gi == number(gi))
    first = min((mig.address for mig in inside), default=0)
    require(first, NOT_FOUND)
    put_handle(reference, first + GPU_INSTANCE)


def _gpu_instance_info(device: MigDevice, reference: Any) -> None:
    cut, answer = device.spec, target(reference)
    answer.id, answer.profileId = cut.gi, known(gi_profile(device.gpu.gpu, cut))
    answer.device = ctypes.cast(device.parent_address, type(answer.device))
    answer.placement.start, answer.placement.size = cut.start, cut.size


FUNCTIONS: Mapping[str, Function] = {
    "nvmlDeviceGetMigMode": numbers("gpu", _mode),
    "nvmlDeviceGetMaxMigDeviceCount": numbers("gpu", _max_count),
    "nvmlDeviceIsMigDeviceHandle": numbers("any", lambda device: int(isinstance(device, MigDevice))),
    "nvmlDeviceGetGpuInstanceId": numbers("mig", lambda device: device.spec.gi),
    "nvmlDeviceGetComputeInstanceId": numbers("mig", lambda device: device.spec.ci),
    "nvmlDeviceGetAttributes_v2": Function("mig", _attributes),
    "nvmlDeviceGetGpuInstanceById": Function("gpu", _gpu_instance),
    "nvmlGpuInstanceGetInfo": Function("gpu instance", _gpu_instance_info),
}


NOT_AVAILABLE = 2**64 - 1
NO_INSTANCE = 0xFFFFFFFF


def _list(kind: ProcessKind, device: Device, count: Any, infos: Any) -> None:
    seen = device.state.processes if device.lists_pids else ()
    found = [state for state in seen if state.running.process.kind == kind]
    put_length(count, infos, len(found))
    for place, state in enumerate(found):
        info, cut = infos[place], state.instance
        info.pid = state.pid
        info.usedGpuMemory = state.memory if state.told else NOT_AVAILABLE
        if hasattr(info, "gpuInstanceId"):
            info.gpuInstanceId, info.computeInstanceId = (cut.gi, cut.ci) if cut else (NO_INSTANCE,) * 2


def _utilization(device: GpuDevice, answers: Any, count: Any, last_seen: Any) -> None:
    require(not device.state.is_cut)
    records = newer(device.state.samples, number(last_seen))
    require(records, NOT_FOUND)
    put_length(count, answers, len(records))
    for place, (pid, (timestamp, sm)) in enumerate(records.items()):
        answer = answers[place]
        answer.pid, answer.timeStamp, answer.smUtil, answer.memUtil = pid, timestamp, sm, sm // 2
        answer.encUtil = answer.decUtil = 0


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
