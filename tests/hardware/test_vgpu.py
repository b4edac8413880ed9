"""vGPUs of a host and the license of a guest, from a library that answers as the driver's header says."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pynvml
import pytest

from exporter.model import License, VgpuReading
from exporter.nvml.driver.calls import Calls, DeviceLostError, DriverGoneError
from exporter.nvml.vgpu import VgpuReader
from tests.hardware.making import GIB, Clock, ticking
from tests.hardware.tiny import HANDLE, Function, answers, fills, installed, writes

GPU = "GPU-a"
NONE, PASSTHROUGH, GUEST, HOST, VSGA = range(5)
NO_INSTANCE = 0xFFFFFFFF
NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, UNKNOWN = 3, 4, 6, 999
INVALID, VALID, NOT_APPLICABLE, PERMANENT = 1, 2, 3, 4
# Numbers of vGPUs have the highest bit set: they must not become negative on their way.
FIRST, SECOND = 3_251_634_213, 3_251_634_214


def per_vgpu(write: Callable[[Any, int], None], refused: dict[int, int] | None = None) -> Function:
    """Make a function about one vGPU, by its number: it writes its second argument, or refuses."""

    def function(number: int, reference: Any, *_: Any) -> int:
        code = (refused or {}).get(number, 0)
        if not code:
            write(reference._obj, number)
        return code

    return function


def text(prefix: str, **more: Any) -> Function:
    """Make a function that names a vGPU after its number."""
    return per_vgpu(lambda buffer, number: setattr(buffer, "value", f"{prefix}-{number}".encode()), **more)


def number(value: Any, **more: Any) -> Function:
    """Make a function that tells a number of every vGPU: one, or one for each."""

    def write(target: Any, vgpu: int) -> None:
        target.value = value[vgpu] if isinstance(value, dict) else value

    return per_vgpu(write, **more)


def active(*numbers: int) -> Function:
    """Make the list of vGPUs that run."""

    def function(_handle: Any, count: Any, found: Any) -> int:
        room = 0 if found is None else count._obj.value
        count._obj.value = len(numbers)
        if room < len(numbers):
            return pynvml.NVML_ERROR_INSUFFICIENT_SIZE
        for place, each in enumerate(numbers):
            found[place] = each
        return 0

    return function


def samples(*records: tuple[int, int, int], asked: list[int] | None = None) -> Function:
    """Make samples of (vGPU, time in microseconds, percent); the memory is busy half as long."""

    def function(_handle: Any, since: Any, _kind: Any, count: Any, found: Any) -> int:
        if asked is not None and found is None:
            asked.append(since.value)
        room = 0 if found is None else count._obj.value
        count._obj.value = len(records)
        if room < len(records):
            return pynvml.NVML_ERROR_INSUFFICIENT_SIZE
        for place, (vgpu, at, percent) in enumerate(records):
            found[place].vgpuInstance, found[place].timeStamp = vgpu, at
            found[place].smUtil.uiVal, found[place].memUtil.uiVal = percent, percent // 2
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
    """Make a host with one vGPU, which is licensed and did not run; replace functions of it."""
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
    found = (reader or VgpuReader(ticking())).read(calls, GPU, HANDLE)["vgpus"]
    assert found is not None
    return {vgpu.uuid: vgpu for vgpu in found}


def only(calls: Calls, reader: VgpuReader | None = None) -> VgpuReading:
    """Read the one vGPU that there is."""
    (found,) = vgpus(calls, reader).values()
    return found


def test_a_vgpu_is_read_whole():
    """Who it is, of which type, whose, how large, how full and whether licensed, without any failure."""
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
    assert not calls.errors
    assert set(calls.asked) == {"vgpu"}


@pytest.mark.parametrize(
    ("mode", "name"),
    [(NONE, "none"), (PASSTHROUGH, "passthrough"), (VSGA, "vsga_host"), (77, None)],
)
def test_where_no_vgpu_can_be_none_is_asked_for(mode: int, name: str | None):
    """Bare metal costs one call; a mode without a name is not known."""
    calls = host(nvmlDeviceGetVirtualizationMode=writes(mode))
    assert VgpuReader(ticking()).read(calls, GPU, HANDLE) == {
        "virtualization": name,
        "license": None,
        "vgpus": None,
    }
    assert calls.asked == {"vgpu": 1}


def test_a_host_without_a_vgpu_has_none_and_a_host_that_fails_is_unknown():
    """An empty list is an observation, a refused one is not."""
    read = VgpuReader(ticking()).read(host(nvmlDeviceGetActiveVgpus=active()), GPU, HANDLE)
    assert (read["virtualization"], read["vgpus"]) == ("vgpu_host", ())
    calls = host(nvmlDeviceGetActiveVgpus=answers(UNKNOWN))
    assert VgpuReader(ticking()).read(calls, GPU, HANDLE)["vgpus"] is None
    assert calls.errors == {(GPU, "nvmlDeviceGetActiveVgpus", "Unknown"): 1}


def test_an_unknown_mode_says_nothing_of_vgpus():
    """Without the mode, there may be vGPUs."""
    calls = host(nvmlDeviceGetVirtualizationMode=answers(UNKNOWN))
    assert set(VgpuReader(ticking()).read(calls, GPU, HANDLE).values()) == {None}


def test_more_than_four_gibibytes_are_told():
    """The binding's own way keeps the lower half of the number, which would show 1 GiB here."""
    calls = host(nvmlVgpuInstanceGetFbUsage=number(9 * GIB))
    assert pynvml.nvmlVgpuInstanceGetFbUsage(FIRST) == GIB
    assert only(calls).memory_used == 9 * GIB


@pytest.mark.parametrize("call", ["nvmlVgpuInstanceGetFbUsage", "nvmlVgpuTypeGetFramebufferSize"])
def test_memory_that_is_not_available_is_unknown(call: str):
    """The sentinel of 64 bits is no number of bytes."""
    vgpu = only(host(**{call: number(2**64 - 1)}))
    assert None in (vgpu.memory_used, vgpu.memory_total)


def test_a_failure_of_the_corrected_call_is_one_of_the_driver():
    """It is counted under its name and costs its figure alone."""
    calls = host(nvmlVgpuInstanceGetFbUsage=answers(NO_PERMISSION))
    assert only(calls).memory_used is None
    assert calls.errors == {(GPU, "nvmlVgpuInstanceGetFbUsage", "NoPermission"): 1}


def test_without_a_sample_nothing_is_known_of_a_vgpus_use():
    """The driver finds no newer samples, or none at all: an idle vGPU would have one that says so."""
    for answer in (answers(NOT_FOUND), answers(0)):
        calls = host(
            nvmlDeviceGetActiveVgpus=active(FIRST, SECOND),
            nvmlDeviceGetVgpuUtilization=answer,
        )
        found = vgpus(calls).values()
        assert [(vgpu.sm_percent, vgpu.encoder_percent) for vgpu in found] == [(None, None)] * 2
        assert not calls.errors


def test_a_vgpu_that_is_not_in_the_samples_is_not_known():
    """Beside one that was seen to be idle."""
    calls = host(
        nvmlDeviceGetActiveVgpus=active(FIRST, SECOND),
        nvmlDeviceGetVgpuUtilization=samples((SECOND, 1000, 0)),
    )
    assert [vgpu.sm_percent for vgpu in vgpus(calls).values()] == [None, 0]


def test_a_driver_without_a_meter_says_nothing_of_use():
    """Not supported, or failed: no vGPU has a share then, and none a zero."""
    for code in (NOT_SUPPORTED, UNKNOWN):
        vgpu = only(host(nvmlDeviceGetVgpuUtilization=answers(code)))
        assert (vgpu.sm_percent, vgpu.memory_percent, vgpu.decoder_percent) == (None, None, None)
        assert vgpu.memory_used == GIB


def test_a_share_is_cut_at_all_the_time_there_is_and_garbage_is_unknown():
    """As with processes: sampling overshoots by a little, never by a thousand."""
    assert only(host(nvmlDeviceGetVgpuUtilization=samples((FIRST, 1, 113)))).sm_percent == 100
    assert only(host(nvmlDeviceGetVgpuUtilization=samples((FIRST, 1, 4_000_000_000)))).sm_percent is None


def test_each_gpu_is_asked_from_where_its_own_samples_ended():
    """The newest time stamp of a GPU is passed at its next read, and forgotten with the GPU."""
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


def test_a_clock_that_is_set_back_does_not_silence_the_samples(monkeypatch: pytest.MonkeyPatch):
    """New samples look older than the last, and those of a time to come are passed over."""
    clock = Clock()
    monkeypatch.setattr("exporter.nvml.readings.samples.time", clock)
    reader = VgpuReader(ticking())
    before = (FIRST, int(clock.time() * 1e6), 5)
    assert only(host(nvmlDeviceGetVgpuUtilization=samples(before)), reader).sm_percent == 5
    clock.wall_offset = -3600.0
    after = (FIRST, int(clock.time() * 1e6), 30)
    assert only(host(nvmlDeviceGetVgpuUtilization=samples(before, after)), reader).sm_percent == 30


def test_a_vgpu_that_goes_while_it_is_read_costs_itself_alone():
    """It was listed and is then not found: the others stay, and nothing failed."""
    calls = host(
        nvmlDeviceGetActiveVgpus=active(FIRST, SECOND),
        nvmlVgpuInstanceGetUUID=text("vgpu", refused={FIRST: NOT_FOUND}),
    )
    assert list(vgpus(calls)) == [f"vgpu-{SECOND}"]
    assert not calls.errors


@pytest.mark.parametrize("code", [UNKNOWN, NOT_SUPPORTED])
def test_a_vgpu_that_does_not_say_who_it_is_leaves_their_number_unknown(code: int):
    """A count without it would be too small, and so would what each of the others is one part of."""
    calls = host(nvmlVgpuInstanceGetUUID=text("vgpu", refused={FIRST: code}))
    assert VgpuReader(ticking()).read(calls, GPU, HANDLE)["vgpus"] is None


def test_a_vgpu_that_goes_after_it_said_who_it_is_has_no_figures():
    """What was told stays, and the rest is unknown."""
    calls = host(
        nvmlVgpuInstanceGetType=answers(NOT_FOUND),
        nvmlVgpuInstanceGetFbUsage=answers(NOT_FOUND),
        nvmlVgpuInstanceGetVmID=answers(NOT_FOUND),
    )
    vgpu = only(calls)
    assert (vgpu.type_name, vgpu.memory_total, vgpu.memory_used, vgpu.vm_id) == (None, None, None, None)
    assert vgpu.mdev_uuid == f"mdev-{FIRST}"
    assert not calls.errors


def test_what_one_vgpu_does_not_support_another_may():
    """An answer of 'not supported' is remembered for that vGPU, and forgotten when it goes."""
    calls = host(
        nvmlDeviceGetActiveVgpus=active(FIRST, SECOND),
        nvmlVgpuInstanceGetFbUsage=number(GIB, refused={FIRST: NOT_SUPPORTED}),
    )
    reader = VgpuReader(ticking())
    assert [vgpu.memory_used for vgpu in vgpus(calls, reader).values()] == [None, GIB]
    assert calls.unsupported(f"vgpu-{FIRST}") == ("nvmlVgpuInstanceGetFbUsage",)
    host(nvmlDeviceGetActiveVgpus=active())
    assert not vgpus(calls, reader)
    assert calls.unsupported(f"vgpu-{FIRST}") == ()


def test_a_failure_of_a_vgpu_counts_for_its_gpu():
    """The label of an error is a GPU's uuid."""
    calls = host(nvmlVgpuInstanceGetMdevUUID=answers(UNKNOWN))
    assert only(calls).mdev_uuid is None
    assert calls.errors == {(GPU, "nvmlVgpuInstanceGetMdevUUID", "Unknown"): 1}
    assert calls.withheld(GPU) == {"vgpu": "Unknown"}


def test_a_hypervisor_without_mediated_devices():
    """On Xen the driver does not know the call, and the virtual machine has a number of its own."""

    def domain(_number: int, buffer: Any, _size: Any, kind: Any) -> int:
        buffer._obj.value, kind._obj.value = b"17", 0
        return 0

    calls = host(nvmlVgpuInstanceGetMdevUUID=answers(NOT_SUPPORTED), nvmlVgpuInstanceGetVmID=domain)
    vgpu = only(calls)
    assert (vgpu.mdev_uuid, vgpu.vm_id) == (None, "17")
    assert not calls.errors


def test_a_type_is_asked_once_and_an_answer_that_is_not_whole_again():
    """Names and sizes of types do not change."""
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


def test_a_vgpu_inside_mig_names_its_instance_and_has_no_meter():
    """No driver meters one: a list without it would look like a zero."""
    calls = host(nvmlVgpuInstanceGetGpuInstanceId=number(3), nvmlDeviceGetVgpuUtilization=answers(0))
    vgpu = only(calls)
    assert (vgpu.gi, vgpu.sm_percent, vgpu.encoder_percent) == (3, None, None)
    assert vgpu.memory_used == GIB


@pytest.mark.parametrize(
    ("licensed", "state", "told"),
    [(1, 5, True), (0, 4, False), (0, 3, False), (0, 2, False), (0, 1, None), (0, 0, None), (1, 0, True)],
)
def test_whether_a_vgpu_is_licensed(licensed: int, state: int, told: bool | None):
    """Before the guest's driver has started, nobody has asked for a license: that is not unlicensed."""
    calls = host(nvmlVgpuInstanceGetLicenseInfo_v2=fills(isLicensed=licensed, currentState=state))
    assert only(calls).licensed is told


@pytest.mark.parametrize(("status", "told"), [(1, True), (0, False)])
def test_an_older_driver_tells_yes_or_no(status: int, told: bool):
    """Without the newer call, the older one answers."""
    calls = host(
        nvmlVgpuInstanceGetLicenseInfo_v2=answers(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND),
        nvmlVgpuInstanceGetLicenseStatus=number(status),
    )
    assert only(calls).licensed is told
    assert not calls.errors


def test_a_gpu_that_is_lost_and_a_driver_that_goes_end_the_reading():
    """Further questions would fail as well."""
    with pytest.raises(DeviceLostError):
        VgpuReader(ticking()).read(host(nvmlDeviceGetActiveVgpus=answers(15)), GPU, HANDLE)
    with pytest.raises(DriverGoneError):
        VgpuReader(ticking()).read(host(nvmlVgpuInstanceGetUUID=answers(1)), GPU, HANDLE)


def guest(*features: dict[str, Any], count: int | None = None, supported: int = 1) -> Calls:
    """Make a guest with licensable features."""

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
    """Make an expiry: year, month, day, hour, minute, second."""
    return pynvml.c_nvmlGridLicenseExpiry_t(*(parts or (0,) * 6), status)


def guest_license(calls: Calls) -> License | None:
    """Read the license of the one GPU."""
    read = VgpuReader(ticking()).read(calls, GPU, HANDLE)
    assert (read["virtualization"], read["vgpus"]) == ("vgpu_guest", None)
    found = read["license"]
    assert found is None or isinstance(found, License)
    return found


def feature(product: bytes = b"NVIDIA RTX Virtual Workstation", **fields: Any) -> dict[str, Any]:
    """Make a feature that is switched on and licensed for ever."""
    usual = {
        "featureState": 1,
        "featureEnabled": 1,
        "productName": product,
        "licenseExpiry": expiry(PERMANENT),
    }
    return usual | fields


def test_the_license_of_a_guest():
    """Its product, and when it ends."""
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
def test_a_license_without_an_end(ends: Any):
    """A permanent one, one without a date, and a date that is none."""
    found = guest_license(guest(feature(licenseExpiry=ends)))
    assert found is not None
    assert found.expires is None


def test_an_unlicensed_guest():
    """It says so, which is not the same as having nothing to license."""
    found = guest_license(guest(feature(featureState=0, licenseExpiry=expiry(0))))
    assert found is not None
    assert (found.licensed, found.state) == (False, "unlicensed")
    assert guest_license(guest(supported=0)) is None
    assert guest_license(guest()) is None


def test_of_several_features_the_one_that_is_on():
    """The others could be licensed in its place."""
    features = (feature(b"Virtual Applications", featureEnabled=0, featureState=0), feature(b"vWS"))
    found = guest_license(guest(*features))
    assert found is not None
    assert (found.product, found.licensed) == ("vWS", True)
    found = guest_license(guest(feature(b"first", featureEnabled=0), feature(b"second", featureEnabled=0)))
    assert found is not None
    assert found.product == "first"


def test_a_count_beyond_the_list_and_a_name_that_is_no_text():
    """There is room for three features, and a product's bytes may be no UTF-8."""
    found = guest_license(guest(feature(b"caf\xff"), count=1000))
    assert found is not None
    assert found.product == "caf�"


def test_a_guest_of_an_older_driver_says_nothing_of_its_license():
    """A driver without the call is no failure."""
    calls = installed(nvmlDeviceGetVirtualizationMode=writes(GUEST))
    assert guest_license(calls) is None
    assert not calls.errors
