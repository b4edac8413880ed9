"""Functions of the fake driver about the parts of a GPU: MIG devices, and virtual GPUs with their licenses.

A vGPU and its type are named by numbers instead of handles, which are valid for the whole driver.
"""

import ctypes
import zlib
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Protocol, get_args

import pynvml

from exporter.demo.machine import GpuState, ProcessState
from exporter.demo.nvml import call
from exporter.demo.nvml.board import GPU_INSTANCE, Board, GpuDevice, MigDevice
from exporter.demo.nvml.call import Argument, Code, Function, known, numbers, record, require
from exporter.demo.nvml.gpu import newer
from exporter.demo.scenario import derive
from exporter.demo.scenario.gpus import MIB, MigProfileSize, Vgpu
from exporter.model.hardware import Virtualization

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


def _most_mig_devices(device: GpuDevice) -> int:
    mig = device.spec.mig
    return mig.max_slices if mig and mig.enabled else 0


def _attributes(device: MigDevice) -> tuple[int, ...]:
    instance = device.spec
    counts = derive.engines(device.gpu.gpu, instance)
    engines = [counts.get(engine, 0) for engine in ("copy", "decoder", "encoder", "jpeg", "ofa")]
    slices = instance.gi_slices, instance.compute_slices
    return instance.multiprocessors, *engines, *slices, instance.memory_bytes // MIB


def _gpu_instance(device: GpuDevice, gi: Argument, reference: Argument) -> None:
    inside = (mig for mig in device.migs.values() if mig.spec.gi == gi.number)
    first = min((mig.address for mig in inside), default=0)
    require(first, Code.NOT_FOUND)
    reference.put_handle(first + GPU_INSTANCE)


def _gpu_instance_info(device: MigDevice, reference: Argument) -> None:
    instance, answer = device.spec, reference.target
    answer.id, answer.profileId = instance.gi, known(derive.gi_profile(device.gpu.gpu, instance))
    answer.device = ctypes.cast(device.parent_address, type(answer.device))
    answer.placement.start, answer.placement.size = instance.start, instance.size


def _profile_info(device: GpuDevice, profile: Argument, reference: Argument) -> None:
    answer = reference.record(PROFILE_V2)
    require(0 <= profile.number < PROFILES, Code.INVALID_ARGUMENT)
    sizes: dict[int | None, MigProfileSize] = {}
    for size in sorted(derive.profile_sizes(device.spec), key=lambda size: size.memory_bytes):
        # The second plain profile of one slice has twice the memory.
        place = derive.profile_number(size.name)
        sizes[derive.DOUBLE_MEMORY if place in sizes else place] = size
    size = known(sizes.get(profile.number))
    answer.id, answer.sliceCount = profile.number, int(size.name.partition("g")[0])
    answer.instanceCount, answer.multiprocessorCount = size.instances, size.multiprocessors
    answer.memorySizeMB, answer.name = size.memory_bytes // MIB, f"MIG {size.name}".encode()


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


def _active_vgpus(device: GpuDevice, count: Argument, answers: Argument) -> None:
    require(device.spec.virtualization == "vgpu_host")
    vgpu_numbers = [vgpu_number(vgpu) for vgpu, _ in running_vgpus(device.state)]
    count.put_length(len(vgpu_numbers), answers)
    for place, running in enumerate(vgpu_numbers):
        answers.raw[place] = running


def _vgpu_utilization(
    device: GpuDevice, last_seen: Argument, kind: Argument, count: Argument, answers: Argument
) -> None:
    samples = _vgpu_samples(device, last_seen.number)
    kind.put(UNSIGNED_INT)
    count.put_list(samples, answers)


def _vgpus_utilization(device: GpuDevice, reference: Argument) -> None:
    answer = reference.record(pynvml.VgpuInstancesUtilizationInfo_v1)
    samples = _vgpu_samples(device, answer.lastSeenTimeStamp)
    answer.sampleValType = UNSIGNED_INT
    call.put_list(answer, "vgpuInstanceCount", "vgpuUtilArray", samples)


def _vgpu_samples(device: GpuDevice, last_seen: int) -> list[dict[str, Any]]:
    require(device.spec.virtualization == "vgpu_host")
    vgpus = list(running_vgpus(device.state))
    window = tuple(sample for sample in device.state.samples if sample.timestamp > last_seen)
    require(window or not vgpus, Code.NOT_FOUND)
    records = newer(window, last_seen)
    samples = []
    for vgpu, process in vgpus:
        timestamp, sm = records.get(process.pid, (window[-1].timestamp, 0))
        video = round(sm * VIDEO_RATIO)
        percents = {"smUtil": sm, "memUtil": sm // 2, "encUtil": video, "decUtil": video}
        values = {name: pynvml.c_nvmlValue_t(uiVal=percent) for name, percent in percents.items()}
        samples.append({"vgpuInstance": vgpu_number(vgpu), "timeStamp": timestamp, **values})
    return samples


class _Driver(Protocol):
    board: Board


def _of_vgpu(run: Callable[..., None]) -> Function:
    """Return a function about a running vGPU: ``run`` gets it, its process and the other arguments."""

    def find(driver: _Driver, wanted: Argument, *arguments: Argument) -> None:
        pairs = (pair for device in driver.board.gpus for pair in running_vgpus(device.state))
        pair = next((pair for pair in pairs if vgpu_number(pair[0]) == wanted.number), None)
        run(*known(pair, Code.NOT_FOUND), *arguments)

    return Function("node", find)


def _of_type(run: Callable[..., None]) -> Function:
    """Return a function about a type of vGPUs: ``run`` gets a vGPU of that type and the other arguments."""

    def find(driver: _Driver, wanted: Argument, *arguments: Argument) -> None:
        vgpus = (vgpu for device in driver.board.gpus for vgpu in device.spec.vgpus)
        vgpu = next((vgpu for vgpu in vgpus if _type_number(vgpu) == wanted.number), None)
        run(known(vgpu, Code.INVALID_ARGUMENT), *arguments)

    return Function("node", find)


def _vgpu_text(read: Callable[[Vgpu], str]) -> Function:
    return _of_vgpu(lambda vgpu, _process, buffer, size: buffer.put_text(read(vgpu), size.number))


def _vgpu_number(read: Callable[[Vgpu, ProcessState], int]) -> Function:
    return _of_vgpu(lambda vgpu, process, reference: reference.put(read(vgpu, process)))


def _vm_id(vgpu: Vgpu, _process: ProcessState, buffer: Argument, size: Argument, kind: Argument) -> None:
    buffer.put_text(vgpu.vm_id or derive.make_uuid(vgpu.mdev_uuid, "vm"), size.number)
    kind.put(VM_ID_IS_UUID)


def _license_info(vgpu: Vgpu, _process: ProcessState, reference: Argument) -> None:
    answer = reference.target
    answer.isLicensed, answer.currentState = bool(vgpu.licensed), STATES[vgpu.licensed]


def _licensable(device: GpuDevice, reference: Argument) -> None:
    answer, guest_license = reference.target, device.spec.license
    answer.isGridLicenseSupported = guest_license is not None
    if guest_license is None:
        return
    answer.licensableFeaturesCount = 1
    feature = answer.gridLicensableFeatures[0]
    feature.featureCode, feature.featureEnabled = FEATURE_VGPU, 1
    feature.featureState, feature.productName = guest_license.licensed, guest_license.product.encode()
    expiry = feature.licenseExpiry
    expiry.status = EXPIRES if guest_license.expires else NEVER_EXPIRES
    if guest_license.expires:
        end = datetime.fromisoformat(guest_license.expires)
        expiry.year, expiry.month, expiry.day, expiry.hour, expiry.min, expiry.sec = end.timetuple()[:6]


FUNCTIONS: dict[str, Function] = {
    # The current mode, and the mode after the next reset.
    "nvmlDeviceGetMigMode": numbers("gpu", lambda device: [known(device.spec.mig).enabled] * 2),
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
    "nvmlDeviceGetVgpuUtilization": Function("whole gpu", _vgpu_utilization),
    "nvmlDeviceGetVgpuInstancesUtilizationInfo": Function("whole gpu", _vgpus_utilization),
    "nvmlVgpuInstanceGetUUID": _vgpu_text(vgpu_uuid),
    "nvmlVgpuInstanceGetMdevUUID": _vgpu_text(lambda vgpu: vgpu.mdev_uuid),
    "nvmlVgpuInstanceGetVmID": _of_vgpu(_vm_id),
    "nvmlVgpuInstanceGetType": _vgpu_number(lambda vgpu, _process: _type_number(vgpu)),
    "nvmlVgpuInstanceGetFbUsage": _vgpu_number(lambda _vgpu, process: process.memory),
    "nvmlVgpuInstanceGetGpuInstanceId": _vgpu_number(
        lambda _vgpu, process: process.instance.gi if process.instance else call.NO_INSTANCE
    ),
    "nvmlVgpuInstanceGetLicenseInfo_v2": _of_vgpu(_license_info),
    "nvmlVgpuInstanceGetLicenseStatus": _vgpu_number(lambda vgpu, _process: bool(vgpu.licensed)),
    "nvmlVgpuTypeGetName": _of_type(lambda vgpu, buffer, size: buffer.put_text(vgpu.type, size.number)),
    "nvmlVgpuTypeGetFramebufferSize": _of_type(lambda vgpu, reference: reference.put(vgpu.memory_bytes)),
}
