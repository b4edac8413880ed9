"""Functions of the fake driver about MIG: whether a GPU is cut, and what a MIG device is."""

import ctypes
from collections.abc import Mapping
from typing import Any

from exporter.demo.boards import engines, gi_profile
from exporter.demo.nvml_board import GPU_INSTANCE, Device, GpuDevice, MigDevice
from exporter.demo.nvml_call import Function, number, numbers, put_handle, target
from exporter.demo.nvml_codes import NOT_FOUND, NOT_SUPPORTED, refuse
from exporter.demo.schema_gpu import MIB


def _mode(device: GpuDevice) -> tuple[int, int]:
    if device.state.gpu.mig is None:
        return refuse(NOT_SUPPORTED)
    enabled = int(device.state.is_cut)
    return enabled, enabled


def _max_count(device: GpuDevice) -> int:
    mig = device.state.gpu.mig
    return mig.max_slices if mig and mig.enabled else 0


def _is_mig(device: Device) -> int:
    return int(isinstance(device, MigDevice))


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
    "nvmlDeviceIsMigDeviceHandle": numbers("any", _is_mig),
    "nvmlDeviceGetGpuInstanceId": numbers("mig", lambda device: device.state.instance.gi),
    "nvmlDeviceGetComputeInstanceId": numbers("mig", lambda device: device.state.instance.ci),
    "nvmlDeviceGetAttributes_v2": Function("mig", _attributes),
    "nvmlDeviceGetGpuInstanceById": Function("gpu", _gpu_instance),
    "nvmlGpuInstanceGetInfo": Function("gpu instance", _gpu_instance_info),
}
