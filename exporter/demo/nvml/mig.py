"""Functions of the fake driver about MIG devices and processes."""

import ctypes
from collections.abc import Mapping
from functools import partial
from typing import Any

from exporter.demo.machine import Sample
from exporter.demo.nvml.board import GPU_INSTANCE, Device, GpuDevice, MigDevice
from exporter.demo.nvml.call import (
    Code,
    Function,
    known,
    number,
    numbers,
    put_handle,
    put_length,
    record,
    refuse,
    require,
    target,
)
from exporter.demo.scenario.derive import (
    DOUBLE_MEMORY,
    engines,
    gi_profile,
    profile_number,
    profile_sizes,
)
from exporter.demo.scenario.gpus import MIB, MigProfileSize
from exporter.model.hardware import ProcessKind

NOT_AVAILABLE = 2**64 - 1
NO_INSTANCE = 0xFFFFFFFF
PROFILE_V2, PROFILES = 0x02000098, 18
_LISTS: Mapping[str, ProcessKind] = {"Compute": "compute", "Graphics": "graphics", "MPSCompute": "mps"}
_ATTRIBUTES = (
    "multiprocessorCount sharedCopyEngineCount sharedDecoderCount sharedEncoderCount sharedJpegCount"
    " sharedOfaCount gpuInstanceSliceCount computeInstanceSliceCount memorySizeMB"
)


def _mode(device: GpuDevice) -> tuple[int, int]:
    require(device.spec.mig)
    return int(device.spec.mig_enabled), int(device.spec.mig_enabled)


def _max_count(device: GpuDevice) -> int:
    mig = device.spec.mig
    return mig.max_slices if mig and mig.enabled else 0


def _attributes(device: MigDevice) -> tuple[int, ...]:
    instance = device.spec
    counts = engines(device.gpu.gpu, instance)
    return (
        instance.multiprocessors,
        *(counts.get(engine, 0) for engine in ("copy", "decoder", "encoder", "jpeg", "ofa")),
        instance.gi_slices,
        instance.compute_slices,
        instance.memory_bytes // MIB,
    )


def _gpu_instance(device: GpuDevice, gi: Any, reference: Any) -> None:
    inside = (mig for mig in device.migs.values() if mig.spec.gi == number(gi))
    first = min((mig.address for mig in inside), default=0)
    require(first, Code.NOT_FOUND)
    put_handle(reference, first + GPU_INSTANCE)


def _gpu_instance_info(device: MigDevice, reference: Any) -> None:
    instance, answer = device.spec, target(reference)
    answer.id, answer.profileId = instance.gi, known(gi_profile(device.gpu.gpu, instance))
    answer.device = ctypes.cast(device.parent_address, type(answer.device))
    answer.placement.start, answer.placement.size = instance.start, instance.size


def _profile_info(device: GpuDevice, profile: Any, reference: Any) -> None:
    answer = target(reference)
    require(answer.version == PROFILE_V2, Code.VERSION_MISMATCH)
    require(0 <= number(profile) < PROFILES, Code.INVALID_ARGUMENT)
    sizes: dict[int | None, MigProfileSize] = {}
    for size in sorted(profile_sizes(device.spec), key=lambda size: size.memory_bytes):
        # The second plain profile of one slice has twice the memory.
        place = profile_number(size.name)
        sizes[DOUBLE_MEMORY if place in sizes else place] = size
    known_size = sizes.get(number(profile))
    if known_size is None:
        refuse()
    answer.id, answer.sliceCount = number(profile), int(known_size.name.partition("g")[0])
    answer.instanceCount, answer.multiprocessorCount = known_size.instances, known_size.multiprocessors
    answer.memorySizeMB, answer.name = known_size.memory_bytes // MIB, f"MIG {known_size.name}".encode()


def _processes(kind: ProcessKind, device: Device, count: Any, infos: Any) -> None:
    visible = device.state.processes if device.lists_pids else ()
    processes = [state for state in visible if state.running.process.kind == kind]
    put_length(count, infos, len(processes))
    for place, state in enumerate(processes):
        info, instance = infos[place], state.instance
        info.pid = state.pid
        info.usedGpuMemory = state.memory if state.memory_known else NOT_AVAILABLE
        if hasattr(info, "gpuInstanceId"):
            info.gpuInstanceId = instance.gi if instance else NO_INSTANCE
            info.computeInstanceId = instance.ci if instance else NO_INSTANCE


def _utilization(device: GpuDevice, answers: Any, count: Any, last_seen: Any) -> None:
    require(not device.spec.mig_enabled)
    records = newer(device.state.samples, number(last_seen))
    require(records, Code.NOT_FOUND)
    put_length(count, answers, len(records))
    for place, (pid, (timestamp, sm)) in enumerate(records.items()):
        answer = answers[place]
        answer.pid, answer.timeStamp, answer.smUtil, answer.memUtil = pid, timestamp, sm, sm // 2
        answer.encUtil = answer.decUtil = 0


def newer(samples: tuple[Sample, ...], last_seen: int) -> dict[int, tuple[int, int]]:
    """Return pid → (time of its last activity in microseconds, mean percent) over the newer samples.

    A process that was idle in all of them has no record.
    """
    window = [sample for sample in samples if sample.timestamp > last_seen]
    records: dict[int, tuple[int, int]] = {}
    for pid in sorted({pid for sample in window for pid, sm in sample.sm.items() if sm}):
        total = sum(sample.sm.get(pid, 0) for sample in window)
        latest = max(sample.timestamp for sample in window if sample.sm.get(pid))
        records[pid] = latest, max(1, round(total / len(window)))
    return records


FUNCTIONS: Mapping[str, Function] = {
    "nvmlDeviceGetMigMode": numbers("gpu", _mode),
    "nvmlDeviceGetMaxMigDeviceCount": numbers("gpu", _max_count),
    "nvmlDeviceIsMigDeviceHandle": numbers("any", lambda device: int(isinstance(device, MigDevice))),
    "nvmlDeviceGetGpuInstanceId": numbers("mig", lambda device: device.spec.gi),
    "nvmlDeviceGetComputeInstanceId": numbers("mig", lambda device: device.spec.ci),
    "nvmlDeviceGetAttributes_v2": record("mig", _ATTRIBUTES, _attributes),
    "nvmlDeviceGetGpuInstanceProfileInfoV": Function("gpu", _profile_info),
    "nvmlDeviceGetGpuInstanceById": Function("gpu", _gpu_instance),
    "nvmlGpuInstanceGetInfo": Function("gpu instance", _gpu_instance_info),
    **{
        f"nvmlDeviceGet{name}RunningProcesses{version}": Function("any", partial(_processes, kind))
        for name, kind in _LISTS.items()
        for version in ("", "_v2", "_v3")
    },
    "nvmlDeviceGetProcessUtilization": Function("gpu", _utilization),
}
