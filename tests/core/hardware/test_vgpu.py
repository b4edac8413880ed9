"""vGPUs of a host and the license of a guest, from a library that answers as documented in nvml.h."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pynvml
import pytest

from exporter.model import License, VgpuReading
from exporter.nvml.driver.calls import Calls, DeviceLostError, DriverGoneError
from exporter.nvml.vgpu import VgpuReader
from tests.core.hardware.making import GIB, Clock, ticking
from tests.core.hardware.tiny import HANDLE, Function, answers, fills, installed, writes

GPU = "GPU-a"
NONE, PASSTHROUGH, GUEST, HOST, VSGA = range(5)
NO_INSTANCE = 0xFFFFFFFF
NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, UNKNOWN = 3, 4, 6, 999
INVALID, VALID, NOT_APPLICABLE, PERMANENT = 1, 2, 3, 4
# Numbers of vGPUs have the highest bit set: they must not become negative on their way.
FIRST, SECOND = 3_251_634_213, 3_251_634_214


def per_vgpu(write: Callable[[Any, int], None], refused: dict[int, int] | None = None) -> Function:
    """Return a function about one vGPU, by its number: it writes its second argument, or refuses."""

    def function(number: int, reference: Any, *_: Any) -> int:
        code = (refused or {}).get(number, 0)
        if not code:
            write(reference._obj, number)
        return code

    return function


def text(prefix: str, **more: Any) -> Function:
    """Return a function that names a vGPU after its number."""
    return per_vgpu(lambda buffer, number: setattr(buffer, "value", f"{prefix}-{number}".encode()), **more)


def number(value: Any, **more: Any) -> Function:
    """Return a function with one value for all vGPUs, or a dict with one by vGPU."""

    def write(target: Any, vgpu: int) -> None:
        target.value = value[vgpu] if isinstance(value, dict) else value

    return per_vgpu(write, **more)


def active(*numbers: int) -> Function:
    """Return the list of vGPUs that run."""

    def function(_handle: Any, count: Any, array: Any) -> int:
        room = 0 if array is None else count._obj.value
        count._obj.value = len(numbers)
        if room < len(numbers):
            return pynvml.NVML_ERROR_INSUFFICIENT_SIZE
        for place, vgpu in enumerate(numbers):
            array[place] = vgpu
        return 0

    return function


def samples(*records: tuple[int, int, int], asked: list[int] | None = None) -> Function:
    """Return samples of (vGPU, time in microseconds, percent); the memory is busy half as long."""

    def function(_handle: Any, since: Any, _kind: Any, count: Any, array: Any) -> int:
        if asked is not None and array is None:
            asked.append(since.value)
        room = 0 if array is None else count._obj.value
        count._obj.value = len(records)
        if room < len(records):
            return pynvml.NVML_ERROR_INSUFFICIENT_SIZE
        for place, (vgpu, at, percent) in enumerate(records):
            array[place].vgpuInstance, array[place].timeStamp = vgpu, at
            array[place].smUtil.uiVal, array[place].memUtil.uiVal = percent, percent // 2
        return 0

    return function


def vm_id(_number: int, buffer: Any, _size: Any, kind: Any) -> int:
    """Name a virtual machine, as a hypervisor does that has UUIDs for them."""
    buffer._obj.value, kind._obj.value = b"b1a5c0de", 1
    return 0


def type_name(_type: int, buffer: Any, _size: Any) -> int:
    """Name a type."""
    buffer.value = b"NVIDIA A40-12Q"
    return 0


def host(**functions: Function) -> Calls:
    """Return a host with one vGPU, which is licensed and did not run; replace functions of it."""
    usual: dict[str, Function] = {
        "nvmlDeviceGetVirtualizationMode": writes(HOST),
        "nvmlDeviceGetActiveVgpus": active(FIRST),
        "nvmlDeviceGetVgpuUtilization": answers(NOT_FOUND),
        "nvmlVgpuInstanceGetUUID": text("vgpu"),
        "nvmlVgpuInstanceGetMdevUUID": text("mdev"),
        "nvmlVgpuInstanceGetVmID": vm_id,
        "nvmlVgpuInstanceGetType": number(557),
        "nvmlVgpuInstanceGetGpuInstanceId": number(NO_INSTANCE),
        "nvmlVgpuInstanceGetFbUsage": number(GIB),
        "nvmlVgpuInstanceGetLicenseInfo_v2": fills(isLicensed=1, currentState=5),
        "nvmlVgpuTypeGetName": type_name,
        "nvmlVgpuTypeGetFramebufferSize": number(12 * GIB),
    }
    return installed(**(usual | functions))


def vgpus(calls: Calls, reader: VgpuReader | None = None) -> dict[str, VgpuReading]:
    """Read the vGPUs of the one GPU, by uuid."""
    listed = (reader or VgpuReader(ticking())).read(calls, GPU, HANDLE)["vgpus"]
    assert listed is not None
    return {vgpu.uuid: vgpu for vgpu in listed}


def only(calls: Calls, reader: VgpuReader | None = None) -> VgpuReading:
    """Read the one vGPU that there is."""
    (vgpu,) = vgpus(calls, reader).values()
    return vgpu


def test_every_reading_of_a_vgpu():
    calls = host(nvmlDeviceGetVgpuUtilization=samples((FIRST, 1000, 40)))
    assert only(calls) == VgpuReading(
        uuid=f"vgpu-{FIRST}",
        mdev_uuid=f"mdev-{FIRST}",
        vm_id="b1a5c0de",
        type_name="NVIDIA A40-12Q",
        memory_total=12 * GIB,
        memory_used=GIB,
        sm_percent=40,
        memory_percent=20,
        encoder_percent=0,
        decoder_percent=0,
        licensed=True,
    )
    assert not calls.records.errors
    assert set(calls.records.asked) == {"vgpu"}


@pytest.mark.parametrize(
    ("mode", "name"),
    [(NONE, "none"), (PASSTHROUGH, "passthrough"), (VSGA, "vsga_host"), (77, None)],
)
def test_outside_a_vgpu_host_no_vgpu_is_asked_for(mode: int, name: str | None):
    calls = host(nvmlDeviceGetVirtualizationMode=writes(mode))
    assert VgpuReader(ticking()).read(calls, GPU, HANDLE) == {
        "virtualization": name,
        "license": None,
        "vgpus": None,
    }
    assert calls.records.asked == {"vgpu": 1}


def test_an_empty_list_of_vgpus_and_a_failing_one_differ():
    read = VgpuReader(ticking()).read(host(nvmlDeviceGetActiveVgpus=active()), GPU, HANDLE)
    assert (read["virtualization"], read["vgpus"]) == ("vgpu_host", ())
    calls = host(nvmlDeviceGetActiveVgpus=answers(UNKNOWN))
    assert VgpuReader(ticking()).read(calls, GPU, HANDLE)["vgpus"] is None
    assert calls.records.errors == {(GPU, "nvmlDeviceGetActiveVgpus", "Unknown"): 1}


def test_an_unknown_mode_makes_vgpus_unknown():
    calls = host(nvmlDeviceGetVirtualizationMode=answers(UNKNOWN))
    assert set(VgpuReader(ticking()).read(calls, GPU, HANDLE).values()) == {None}


def test_vgpu_memory_has_64_bits():
    """The binding keeps the lower half, which would show 1 GiB."""
    calls = host(nvmlVgpuInstanceGetFbUsage=number(9 * GIB))
    assert pynvml.nvmlVgpuInstanceGetFbUsage(FIRST) == GIB
    assert only(calls).memory_used == 9 * GIB


@pytest.mark.parametrize("call", ["nvmlVgpuInstanceGetFbUsage", "nvmlVgpuTypeGetFramebufferSize"])
def test_unavailable_vgpu_memory_is_unknown(call: str):
    vgpu = only(host(**{call: number(2**64 - 1)}))
    assert None in (vgpu.memory_used, vgpu.memory_total)


def test_a_failing_memory_call_is_counted_and_costs_its_reading():
    calls = host(nvmlVgpuInstanceGetFbUsage=answers(NO_PERMISSION))
    assert only(calls).memory_used is None
    assert calls.records.errors == {(GPU, "nvmlVgpuInstanceGetFbUsage", "NoPermission"): 1}


def test_without_samples_vgpu_utilization_is_unknown():
    """An idle vGPU has a sample of zero."""
    for answer in (answers(NOT_FOUND), answers(0)):
        calls = host(
            nvmlDeviceGetActiveVgpus=active(FIRST, SECOND),
            nvmlDeviceGetVgpuUtilization=answer,
        )
        idle = vgpus(calls).values()
        assert [(vgpu.sm_percent, vgpu.encoder_percent) for vgpu in idle] == [(None, None)] * 2
        assert not calls.records.errors


def test_a_vgpu_without_a_sample_is_unknown_beside_an_idle_one():
    calls = host(
        nvmlDeviceGetActiveVgpus=active(FIRST, SECOND),
        nvmlDeviceGetVgpuUtilization=samples((SECOND, 1000, 0)),
    )
    assert [vgpu.sm_percent for vgpu in vgpus(calls).values()] == [None, 0]


def test_without_a_meter_vgpu_utilization_is_unknown():
    for code in (NOT_SUPPORTED, UNKNOWN):
        vgpu = only(host(nvmlDeviceGetVgpuUtilization=answers(code)))
        assert (vgpu.sm_percent, vgpu.memory_percent, vgpu.decoder_percent) == (None, None, None)
        assert vgpu.memory_used == GIB


def test_vgpu_utilization_is_limited_to_100_percent_or_unknown():
    assert only(host(nvmlDeviceGetVgpuUtilization=samples((FIRST, 1, 113)))).sm_percent == 100
    calls = host(nvmlDeviceGetVgpuUtilization=samples((FIRST, 1, 4_000_000_000)))
    assert only(calls).sm_percent is None
    assert calls.records.errors == {(GPU, "nvmlDeviceGetVgpuUtilization", "ImpossibleSample"): 1}


def test_each_gpu_is_asked_for_vgpu_samples_since_its_own_last_one():
    asked: list[int] = []
    reader = VgpuReader(ticking())
    reader.read(host(nvmlDeviceGetVgpuUtilization=samples((FIRST, 3000, 5), asked=asked)), "GPU-a", HANDLE)
    reader.read(host(nvmlDeviceGetVgpuUtilization=samples((FIRST, 9000, 5), asked=asked)), "GPU-b", HANDLE)
    later = host(nvmlDeviceGetVgpuUtilization=samples(asked=asked))
    reader.read(later, "GPU-a", HANDLE)
    reader.keep_only(["GPU-b"])
    for gpu in ("GPU-a", "GPU-b"):
        reader.read(later, gpu, HANDLE)
    assert asked == [0, 0, 3000, 0, 9000]


def test_after_a_clock_step_back_new_samples_count(monkeypatch: pytest.MonkeyPatch):
    clock = Clock()
    monkeypatch.setattr("exporter.nvml.readings.samples.time", clock)
    reader = VgpuReader(ticking())
    before = (FIRST, int(clock.time() * 1e6), 5)
    assert only(host(nvmlDeviceGetVgpuUtilization=samples(before)), reader).sm_percent == 5
    clock.wall_offset = -3600.0
    after = (FIRST, int(clock.time() * 1e6), 30)
    assert only(host(nvmlDeviceGetVgpuUtilization=samples(before, after)), reader).sm_percent == 30


def test_a_vgpu_that_disappears_while_read_costs_itself():
    calls = host(
        nvmlDeviceGetActiveVgpus=active(FIRST, SECOND),
        nvmlVgpuInstanceGetUUID=text("vgpu", refused={FIRST: NOT_FOUND}),
    )
    assert list(vgpus(calls)) == [f"vgpu-{SECOND}"]
    assert not calls.records.errors


@pytest.mark.parametrize("code", [UNKNOWN, NOT_SUPPORTED])
def test_a_vgpu_without_uuid_makes_the_list_unknown(code: int):
    """A count without it would be too small."""
    calls = host(nvmlVgpuInstanceGetUUID=text("vgpu", refused={FIRST: code}))
    assert VgpuReader(ticking()).read(calls, GPU, HANDLE)["vgpus"] is None


def test_a_vgpu_that_disappears_after_its_uuid_has_unknown_readings():
    calls = host(
        nvmlVgpuInstanceGetType=answers(NOT_FOUND),
        nvmlVgpuInstanceGetFbUsage=answers(NOT_FOUND),
        nvmlVgpuInstanceGetVmID=answers(NOT_FOUND),
    )
    vgpu = only(calls)
    assert (vgpu.type_name, vgpu.memory_total, vgpu.memory_used, vgpu.vm_id) == (None, None, None, None)
    assert vgpu.mdev_uuid == f"mdev-{FIRST}"
    assert not calls.records.errors


def test_unsupported_calls_are_remembered_by_vgpu():
    calls = host(
        nvmlDeviceGetActiveVgpus=active(FIRST, SECOND),
        nvmlVgpuInstanceGetFbUsage=number(GIB, refused={FIRST: NOT_SUPPORTED}),
    )
    reader = VgpuReader(ticking())
    assert [vgpu.memory_used for vgpu in vgpus(calls, reader).values()] == [None, GIB]
    assert calls.records.unsupported(f"vgpu-{FIRST}") == ("nvmlVgpuInstanceGetFbUsage",)
    host(nvmlDeviceGetActiveVgpus=active())
    assert not vgpus(calls, reader)
    assert calls.records.unsupported(f"vgpu-{FIRST}") == ()


def test_failures_of_a_vgpu_count_for_its_gpu():
    calls = host(nvmlVgpuInstanceGetMdevUUID=answers(UNKNOWN))
    assert only(calls).mdev_uuid is None
    assert calls.records.errors == {(GPU, "nvmlVgpuInstanceGetMdevUUID", "Unknown"): 1}
    assert calls.records.withheld(GPU) == {"vgpu": "Unknown"}


def test_without_mediated_devices_a_vgpu_has_its_vm_id():
    """As on Xen."""

    def domain(_number: int, buffer: Any, _size: Any, kind: Any) -> int:
        buffer._obj.value, kind._obj.value = b"17", 0
        return 0

    calls = host(nvmlVgpuInstanceGetMdevUUID=answers(NOT_SUPPORTED), nvmlVgpuInstanceGetVmID=domain)
    vgpu = only(calls)
    assert (vgpu.mdev_uuid, vgpu.vm_id) == (None, "17")
    assert not calls.records.errors


def test_a_vgpu_type_is_asked_for_until_it_is_known():
    asked: list[int] = []

    def name(kind: int, buffer: Any, size: Any) -> int:
        asked.append(kind)
        return type_name(kind, buffer, size)

    reader = VgpuReader(ticking())
    failing = host(nvmlVgpuTypeGetName=name, nvmlVgpuTypeGetFramebufferSize=answers(UNKNOWN))
    assert only(failing, reader).memory_total is None
    calls = host(nvmlVgpuTypeGetName=name)
    for _ in range(3):
        assert only(calls, reader).memory_total == 12 * GIB
    assert asked == [557, 557]


def test_a_vgpu_in_a_mig_instance_has_no_utilization():
    """No driver measures one."""
    calls = host(nvmlVgpuInstanceGetGpuInstanceId=number(3), nvmlDeviceGetVgpuUtilization=answers(0))
    vgpu = only(calls)
    assert (vgpu.gi, vgpu.sm_percent, vgpu.encoder_percent) == (3, None, None)
    assert vgpu.memory_used == GIB


@pytest.mark.parametrize(
    ("licensed", "state", "expected"),
    [(1, 5, True), (0, 4, False), (0, 3, False), (0, 2, False), (0, 1, None), (0, 0, None), (1, 0, True)],
)
def test_vgpu_license_states(licensed: int, state: int, expected: bool | None):
    """Before the guest's driver has started the license is unknown."""
    calls = host(nvmlVgpuInstanceGetLicenseInfo_v2=fills(isLicensed=licensed, currentState=state))
    assert only(calls).licensed is expected


@pytest.mark.parametrize(("status", "expected"), [(1, True), (0, False)])
def test_an_older_driver_reports_licensed_or_not(status: int, expected: bool):
    calls = host(
        nvmlVgpuInstanceGetLicenseInfo_v2=answers(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND),
        nvmlVgpuInstanceGetLicenseStatus=number(status),
    )
    assert only(calls).licensed is expected
    assert not calls.records.errors


def test_a_lost_gpu_or_driver_ends_the_reading():
    with pytest.raises(DeviceLostError):
        VgpuReader(ticking()).read(host(nvmlDeviceGetActiveVgpus=answers(15)), GPU, HANDLE)
    with pytest.raises(DriverGoneError):
        VgpuReader(ticking()).read(host(nvmlVgpuInstanceGetUUID=answers(1)), GPU, HANDLE)


def guest(*features: dict[str, Any], count: int | None = None, supported: int = 1) -> Calls:
    """Return a guest with licensable features."""

    def licensable(_handle: Any, reference: Any) -> int:
        answer = reference._obj
        answer.isGridLicenseSupported = supported
        answer.licensableFeaturesCount = len(features) if count is None else count
        for place, fields in enumerate(features):
            for name, value in fields.items():
                setattr(answer.gridLicensableFeatures[place], name, value)
        return 0

    return installed(
        nvmlDeviceGetVirtualizationMode=writes(GUEST), nvmlDeviceGetGridLicensableFeatures_v4=licensable
    )


def expiry(status: int, *parts: int) -> Any:
    """Return an expiry: year, month, day, hour, minute, second."""
    return pynvml.c_nvmlGridLicenseExpiry_t(*(parts or (0,) * 6), status)


def guest_license(calls: Calls) -> Any:
    """Read the license of the one GPU."""
    read = VgpuReader(ticking()).read(calls, GPU, HANDLE)
    assert (read["virtualization"], read["vgpus"]) == ("vgpu_guest", None)
    return read["license"]


def feature(product: bytes = b"NVIDIA RTX Virtual Workstation", **fields: Any) -> dict[str, Any]:
    """Return a feature that is switched on and licensed for ever."""
    usual = {
        "featureState": 1,
        "featureEnabled": 1,
        "productName": product,
        "licenseExpiry": expiry(PERMANENT),
    }
    return usual | fields


def test_the_license_of_a_guest():
    ends = expiry(VALID, 2031, 1, 31, 23, 59, 59)
    assert guest_license(guest(feature(licenseExpiry=ends))) == License(
        product="NVIDIA RTX Virtual Workstation",
        licensed=True,
        state="licensed",
        expires=datetime(2031, 1, 31, 23, 59, 59, tzinfo=UTC).timestamp(),
    )


@pytest.mark.parametrize(
    "ends",
    [
        expiry(PERMANENT),
        expiry(NOT_APPLICABLE),
        expiry(INVALID, 2031, 1, 31, 0, 0, 0),
        expiry(0),
        expiry(VALID, 2031, 2, 31, 0, 0, 0),
        expiry(VALID, 0, 0, 0, 0, 0, 0),
    ],
)
def test_permanent_and_invalid_expiries_are_no_date(ends: Any):
    assert guest_license(guest(feature(licenseExpiry=ends))).expires is None


def test_an_unlicensed_guest_and_one_without_license_differ():
    unlicensed = guest_license(guest(feature(featureState=0, licenseExpiry=expiry(0))))
    assert (unlicensed.licensed, unlicensed.state) == (False, "unlicensed")
    assert guest_license(guest(supported=0)) is None
    assert guest_license(guest()) is None


def test_the_enabled_feature_is_the_license():
    features = (feature(b"Virtual Applications", featureEnabled=0, featureState=0), feature(b"vWS"))
    enabled = guest_license(guest(*features))
    assert (enabled.product, enabled.licensed) == ("vWS", True)
    disabled = guest(feature(b"first", featureEnabled=0), feature(b"second", featureEnabled=0))
    assert guest_license(disabled).product == "first"


def test_an_implausible_count_and_invalid_utf8_in_a_license():
    assert guest_license(guest(feature(b"caf\xff"), count=1000)).product == "caf�"


def test_a_guest_of_an_older_driver_has_an_unknown_license():
    calls = installed(nvmlDeviceGetVirtualizationMode=writes(GUEST))
    assert guest_license(calls) is None
    assert not calls.records.errors
