"""Functions of the fake driver about the parts of a GPU: MIG devices, and virtual GPUs with their licenses.

A vGPU and its type are named by numbers instead of handles, which are valid for the whole driver.
"""

import ctypes
import zlib
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, get_args

import pynvml

from exporter.demo.machine import GpuState, ProcessState, Sample
from exporter.demo.nvml.board import GPU_INSTANCE, GpuDevice, MigDevice
from exporter.demo.nvml.call import (
    NO_INSTANCE,
    Code,
    Function,
    known,
    number,
    numbers,
    put,
    put_handle,
    put_length,
    put_records,
    put_text,
    record,
    refuse,
    require,
    target,
)
from exporter.demo.nvml.gpu import newer
from exporter.demo.scenario import derive
from exporter.demo.scenario.gpus import MIB, MigProfileSize, Vgpu
from exporter.model.hardware import Virtualization

if TYPE_CHECKING:
    from exporter.demo.nvml import FakeNvml

PROFILE_V2, PROFILES = 0x02000098, 18
_ATTRIBUTES = (
    "multiprocessorCount sharedCopyEngineCount sharedDecoderCount sharedEncoderCount sharedJpegCount"
    " sharedOfaCount gpuInstanceSliceCount computeInstanceSliceCount memorySizeMB"
)
MODES: tuple[Virtualization, ...] = get_args(Virtualization)
VM_ID_IS_UUID = 1
UNSIGNED_INT = 1
# nvmlGridLicenseState of a license that is unknown, missing and valid.
STATES = {None: 1, False: 4, True: 5}
FEATURE_VGPU = 1
EXPIRES, NEVER_EXPIRES = 2, 4
# Use of the video engines of a vGPU per percent of SM activity; a rule of thumb that looks alive.
VIDEO_RATIO = 0.1


def _mig_mode(device: GpuDevice) -> tuple[int, int]:
    require(device.spec.mig)
    return int(device.spec.mig_enabled), int(device.spec.mig_enabled)


def _most_mig_devices(device: GpuDevice) -> int:
    mig = device.spec.mig
    return mig.max_slices if mig and mig.enabled else 0


def _attributes(device: MigDevice) -> tuple[int, ...]:
    instance = device.spec
    counts = derive.engines(device.gpu.gpu, instance)
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
    answer.id, answer.profileId = instance.gi, known(derive.gi_profile(device.gpu.gpu, instance))
    answer.device = ctypes.cast(device.parent_address, type(answer.device))
    answer.placement.start, answer.placement.size = instance.start, instance.size


def _profile_info(device: GpuDevice, profile: Any, reference: Any) -> None:
    answer = target(reference)
    require(answer.version == PROFILE_V2, Code.VERSION_MISMATCH)
    require(0 <= number(profile) < PROFILES, Code.INVALID_ARGUMENT)
    sizes: dict[int | None, MigProfileSize] = {}
    for size in sorted(derive.profile_sizes(device.spec), key=lambda size: size.memory_bytes):
        # The second plain profile of one slice has twice the memory.
        place = derive.profile_number(size.name)
        sizes[derive.DOUBLE_MEMORY if place in sizes else place] = size
    known_size = sizes.get(number(profile))
    if known_size is None:
        refuse()
    answer.id, answer.sliceCount = number(profile), int(known_size.name.partition("g")[0])
    answer.instanceCount, answer.multiprocessorCount = known_size.instances, known_size.multiprocessors
    answer.memorySizeMB, answer.name = known_size.memory_bytes // MIB, f"MIG {known_size.name}".encode()


def vgpu_number(vgpu: Vgpu) -> int:
    """Return the driver's number of a vGPU; as in real drivers, the highest bit is set."""
    return 0x8000_0000 | zlib.crc32(vgpu.mdev_uuid.lower().encode())


def vgpu_uuid(vgpu: Vgpu) -> str:
    """Return the driver's uuid of a vGPU, which differs from that of its mediated device."""
    return vgpu.uuid or derive.make_uuid(vgpu.mdev_uuid, "vgpu")


def running_vgpus(state: GpuState) -> Iterator[tuple[Vgpu, ProcessState]]:
    """Return the running vGPUs of a GPU, each with its process on the host."""
    processes = {process.pid: process for process in state.processes}
    return ((vgpu, processes[vgpu.pid]) for vgpu in state.gpu.vgpus if vgpu.pid in processes)


def _type_number(vgpu: Vgpu) -> int:
    return zlib.crc32(vgpu.type.encode()) & 0xFFFF


def _active_vgpus(device: GpuDevice, count: Any, answers: Any) -> None:
    require(device.spec.virtualization == "vgpu_host")
    vgpu_numbers = [vgpu_number(vgpu) for vgpu, _ in running_vgpus(device.state)]
    put_length(count, answers, len(vgpu_numbers))
    for place, running in enumerate(vgpu_numbers):
        answers[place] = running


def _vgpu_utilization(device: GpuDevice, last_seen: Any, kind: Any, count: Any, answers: Any) -> None:
    vgpus, window = _sampled_vgpus(device, number(last_seen))
    put(kind, UNSIGNED_INT)
    put_length(count, answers, len(vgpus))
    _fill_vgpu_samples(answers, vgpus, window)


def _vgpus_utilization(device: GpuDevice, reference: Any) -> None:
    answer = target(reference)
    require(answer.version == pynvml.VgpuInstancesUtilizationInfo_v1, Code.VERSION_MISMATCH)
    vgpus, window = _sampled_vgpus(device, answer.lastSeenTimeStamp)
    answer.sampleValType = UNSIGNED_INT
    put_records(answer, "vgpuInstanceCount", "vgpuUtilArray", len(vgpus))
    _fill_vgpu_samples(answer.vgpuUtilArray, vgpus, window)


def _sampled_vgpus(
    device: GpuDevice, last_seen: int
) -> tuple[list[tuple[Vgpu, ProcessState]], tuple[Sample, ...]]:
    require(device.spec.virtualization == "vgpu_host" and not device.spec.mig_enabled)
    vgpus = list(running_vgpus(device.state))
    window = tuple(sample for sample in device.state.samples if sample.timestamp > last_seen)
    require(window or not vgpus, Code.NOT_FOUND)
    return vgpus, window


def _fill_vgpu_samples(
    answers: Any, vgpus: list[tuple[Vgpu, ProcessState]], window: tuple[Sample, ...]
) -> None:
    records = newer(window, 0)
    for place, (vgpu, process) in enumerate(vgpus):
        timestamp, sm = records.get(process.pid, (window[-1].timestamp, 0))
        answer = answers[place]
        answer.vgpuInstance, answer.timeStamp = vgpu_number(vgpu), timestamp
        answer.smUtil.uiVal, answer.memUtil.uiVal = sm, sm // 2
        answer.encUtil.uiVal = answer.decUtil.uiVal = round(sm * VIDEO_RATIO)


def _of_vgpu(run: Callable[..., None]) -> Function:
    """Return a function about a running vGPU: ``run`` gets it, its process and the other arguments."""

    def find(driver: "FakeNvml", wanted: Any, *arguments: Any) -> None:
        pairs = (pair for device in driver.board.gpus for pair in running_vgpus(device.state))
        pair = next((pair for pair in pairs if vgpu_number(pair[0]) == number(wanted)), None)
        run(*(pair or refuse(Code.NOT_FOUND)), *arguments)

    return Function("node", find)


def _of_type(run: Callable[..., None]) -> Function:
    """Return a function about a type of vGPUs: ``run`` gets a vGPU of that type and the other arguments."""

    def find(driver: "FakeNvml", wanted: Any, *arguments: Any) -> None:
        vgpus = (vgpu for device in driver.board.gpus for vgpu in device.spec.vgpus)
        vgpu = next((vgpu for vgpu in vgpus if _type_number(vgpu) == number(wanted)), None)
        run(vgpu or refuse(Code.INVALID_ARGUMENT), *arguments)

    return Function("node", find)


def _vgpu_text(read: Callable[[Vgpu], str]) -> Function:
    return _of_vgpu(lambda vgpu, _process, buffer, size: put_text(target(buffer), size, read(vgpu)))


def _vgpu_number(read: Callable[[Vgpu, ProcessState], int]) -> Function:
    return _of_vgpu(lambda vgpu, process, reference: put(reference, read(vgpu, process)))


def _vm_id(vgpu: Vgpu, _process: ProcessState, buffer: Any, size: Any, kind: Any) -> None:
    put_text(target(buffer), size, vgpu.vm_id or derive.make_uuid(vgpu.mdev_uuid, "vm"))
    put(kind, VM_ID_IS_UUID)


def _vgpu_gpu_instance(_vgpu: Vgpu, process: ProcessState) -> int:
    return NO_INSTANCE if process.instance is None else process.instance.gi


def _license_info(vgpu: Vgpu, _process: ProcessState, reference: Any) -> None:
    answer = target(reference)
    answer.isLicensed, answer.currentState = int(bool(vgpu.licensed)), STATES[vgpu.licensed]


def _licensable(device: GpuDevice, reference: Any) -> None:
    answer, guest_license = target(reference), device.spec.license
    answer.isGridLicenseSupported = int(guest_license is not None)
    if guest_license is None:
        return
    answer.licensableFeaturesCount = 1
    feature = answer.gridLicensableFeatures[0]
    feature.featureCode, feature.featureEnabled = FEATURE_VGPU, 1
    feature.featureState, feature.productName = int(guest_license.licensed), guest_license.product.encode()
    expiry = feature.licenseExpiry
    expiry.status = EXPIRES if guest_license.expires else NEVER_EXPIRES
    if guest_license.expires:
        end = datetime.fromisoformat(guest_license.expires)
        expiry.year, expiry.month, expiry.day = end.year, end.month, end.day
        expiry.hour, expiry.min, expiry.sec = end.hour, end.minute, end.second


FUNCTIONS: Mapping[str, Function] = {
    "nvmlDeviceGetMigMode": numbers("gpu", _mig_mode),
    "nvmlDeviceGetMaxMigDeviceCount": numbers("gpu", _most_mig_devices),
    "nvmlDeviceGetGpuInstanceId": numbers("mig", lambda device: device.spec.gi),
    "nvmlDeviceGetComputeInstanceId": numbers("mig", lambda device: device.spec.ci),
    "nvmlDeviceGetAttributes_v2": record("mig", _ATTRIBUTES, _attributes),
    "nvmlDeviceGetGpuInstanceProfileInfoV": Function("gpu", _profile_info),
    "nvmlDeviceGetGpuInstanceById": Function("gpu", _gpu_instance),
    "nvmlGpuInstanceGetInfo": Function("gpu instance", _gpu_instance_info),
    "nvmlDeviceGetVirtualizationMode": numbers("gpu", lambda device: MODES.index(device.spec.virtualization)),
    "nvmlDeviceGetGridLicensableFeatures_v4": Function("gpu", _licensable),
    "nvmlDeviceGetActiveVgpus": Function("gpu", _active_vgpus),
    "nvmlDeviceGetVgpuUtilization": Function("gpu", _vgpu_utilization),
    "nvmlDeviceGetVgpuInstancesUtilizationInfo": Function("gpu", _vgpus_utilization),
    "nvmlVgpuInstanceGetUUID": _vgpu_text(vgpu_uuid),
    "nvmlVgpuInstanceGetMdevUUID": _vgpu_text(lambda vgpu: vgpu.mdev_uuid),
    "nvmlVgpuInstanceGetVmID": _of_vgpu(_vm_id),
    "nvmlVgpuInstanceGetType": _vgpu_number(lambda vgpu, _process: _type_number(vgpu)),
    "nvmlVgpuInstanceGetFbUsage": _vgpu_number(lambda _vgpu, process: process.memory),
    "nvmlVgpuInstanceGetGpuInstanceId": _vgpu_number(_vgpu_gpu_instance),
    "nvmlVgpuInstanceGetLicenseInfo_v2": _of_vgpu(_license_info),
    "nvmlVgpuInstanceGetLicenseStatus": _vgpu_number(lambda vgpu, _process: int(bool(vgpu.licensed))),
    "nvmlVgpuTypeGetName": _of_type(lambda vgpu, buffer, size: put_text(buffer, target(size), vgpu.type)),
    "nvmlVgpuTypeGetFramebufferSize": _of_type(lambda vgpu, reference: put(reference, vgpu.memory_bytes)),
}
