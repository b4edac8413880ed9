"""Functions of the fake driver about virtual GPUs on a host, and about the license of a guest.

A vGPU and its type are named by numbers instead of handles, which are valid for the whole driver.
"""

import zlib
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, get_args

from exporter.demo.machine import ProcessState, running_vgpus
from exporter.demo.nvml.board import GpuDevice
from exporter.demo.nvml.call import (
    Code,
    Function,
    number,
    numbers,
    put,
    put_length,
    put_text,
    refuse,
    require,
    target,
)
from exporter.demo.nvml.mig import NO_INSTANCE, newer
from exporter.demo.scenario.derive import make_uuid
from exporter.demo.scenario.gpus import Vgpu
from exporter.model.hardware import Virtualization

if TYPE_CHECKING:
    from exporter.demo.nvml.library import FakeNvml

MODES: tuple[Virtualization, ...] = get_args(Virtualization)
VM_ID_IS_UUID = 1
UNSIGNED_INT = 1
# nvmlGridLicenseState of a license that is unknown, missing and valid.
STATES = {None: 1, False: 4, True: 5}
FEATURE_VGPU = 1
EXPIRES, NEVER_EXPIRES = 2, 4
# Use of the video engines of a vGPU per percent of SM activity; a rule of thumb that looks alive.
VIDEO_RATIO = 0.1


def vgpu_number(vgpu: Vgpu) -> int:
    """Return the driver's number of a vGPU; as in real drivers, the highest bit is set."""
    return 0x8000_0000 | zlib.crc32(vgpu.mdev_uuid.lower().encode())


def vgpu_uuid(vgpu: Vgpu) -> str:
    """Return the driver's uuid of a vGPU, which differs from that of its mediated device."""
    return vgpu.uuid or make_uuid(vgpu.mdev_uuid, "vgpu")


def _type_number(vgpu: Vgpu) -> int:
    return zlib.crc32(vgpu.type.encode()) & 0xFFFF


def _active(device: GpuDevice, count: Any, answers: Any) -> None:
    require(device.spec.virtualization == "vgpu_host")
    vgpu_numbers = [vgpu_number(vgpu) for vgpu, _ in running_vgpus(device.state)]
    put_length(count, answers, len(vgpu_numbers))
    for place, running in enumerate(vgpu_numbers):
        answers[place] = running


def _utilization(device: GpuDevice, last_seen: Any, kind: Any, count: Any, answers: Any) -> None:
    require(device.spec.virtualization == "vgpu_host" and not device.spec.mig_enabled)
    vgpus = list(running_vgpus(device.state))
    window = [sample for sample in device.state.samples if sample.timestamp > number(last_seen)]
    require(window or not vgpus, Code.NOT_FOUND)
    put(kind, UNSIGNED_INT)
    put_length(count, answers, len(vgpus))
    records = newer(tuple(window), 0)
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
    put_text(target(buffer), size, vgpu.vm_id or make_uuid(vgpu.mdev_uuid, "vm"))
    put(kind, VM_ID_IS_UUID)


def _gpu_instance(_vgpu: Vgpu, process: ProcessState) -> int:
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
    "nvmlDeviceGetVirtualizationMode": numbers("gpu", lambda device: MODES.index(device.spec.virtualization)),
    "nvmlDeviceGetGridLicensableFeatures_v4": Function("gpu", _licensable),
    "nvmlDeviceGetActiveVgpus": Function("gpu", _active),
    "nvmlDeviceGetVgpuUtilization": Function("gpu", _utilization),
    "nvmlVgpuInstanceGetUUID": _vgpu_text(vgpu_uuid),
    "nvmlVgpuInstanceGetMdevUUID": _vgpu_text(lambda vgpu: vgpu.mdev_uuid),
    "nvmlVgpuInstanceGetVmID": _of_vgpu(_vm_id),
    "nvmlVgpuInstanceGetType": _vgpu_number(lambda vgpu, _process: _type_number(vgpu)),
    "nvmlVgpuInstanceGetFbUsage": _vgpu_number(lambda _vgpu, process: process.memory),
    "nvmlVgpuInstanceGetGpuInstanceId": _vgpu_number(_gpu_instance),
    "nvmlVgpuInstanceGetLicenseInfo_v2": _of_vgpu(_license_info),
    "nvmlVgpuInstanceGetLicenseStatus": _vgpu_number(lambda vgpu, _process: int(bool(vgpu.licensed))),
    "nvmlVgpuTypeGetName": _of_type(lambda vgpu, buffer, size: put_text(buffer, target(size), vgpu.type)),
    "nvmlVgpuTypeGetFramebufferSize": _of_type(lambda vgpu, reference: put(reference, vgpu.memory_bytes)),
}
