"""vGPUs of a host, and the license of the vGPU in a guest."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from exporter.model import License, VgpuReading
from exporter.model.bounds import BYTES
from exporter.model.hardware import Virtualization
from exporter.nvml.driver.binding import NO_INSTANCE, text_field
from exporter.nvml.driver.calls import Calls
from exporter.nvml.driver.records import Call
from exporter.nvml.readings.answers import KeptRows, believed, keep_only, known, sampled_percent
from exporter.nvml.readings.samples import IMPOSSIBLE_SAMPLE, SampleReader, latest_time

GROUP = "vgpu"
UTILIZATION: tuple[Call, ...] = (
    ("nvmlDeviceGetVgpuUtilization", ()),
    ("nvmlDeviceGetVgpuInstancesUtilizationInfo", ()),
)
MODES: dict[int, Virtualization] = {
    0: "none",
    1: "passthrough",
    2: "vgpu_guest",
    3: "vgpu_host",
    4: "vsga_host",
}
# License states before the guest's driver has requested a license.
NOT_REQUESTED = frozenset({0, 1})
# A number, because the binding's names are tuples.
EXPIRY_VALID = 2
# Fields of a sample, in percent of the GPU's time.
SHARES = ("smUtil", "memUtil", "encUtil", "decUtil")


@dataclass(frozen=True, slots=True)
class VgpuType:
    """What is kept of a type of vGPUs."""

    name: str | None
    memory: int | None  # bytes


class VgpuReader:
    """Reads the vGPUs of every GPU; keeps their types. ``clock`` as for SampleReader."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._types: dict[int, VgpuType] = {}
        self._samples = SampleReader(clock)
        # UUIDs of vGPUs by GPU.
        self._running: dict[str, set[str]] = {}
        # Modes of GPUs by uuid.
        self._modes = KeptRows()

    def read(self, calls: Calls, uuid: str, handle: Any, *, slow: bool = True) -> dict[str, Any]:
        """Return the fields ``virtualization``, ``license`` and ``vgpus`` of GpuReading.

        The mode is read with ``slow`` only, and once more after a failure. Raises as ``Calls.ask`` does.
        """
        calls.group = GROUP
        mode = self._mode(calls, uuid, handle, slow=slow)
        return {
            "virtualization": mode,
            "license": _license(calls, uuid, handle) if mode == "vgpu_guest" else None,
            "vgpus": self._vgpus(calls, uuid, handle) if mode == "vgpu_host" else None,
        }

    def keep_only(self, gpus: Collection[str]) -> None:
        """Drop the state of all other GPUs."""
        self._samples.keep_only(gpus)
        keep_only(gpus, self._modes, self._running)

    def _mode(self, calls: Calls, uuid: str, handle: Any, *, slow: bool) -> Virtualization | None:
        if slow:
            self._modes.pop(uuid, None)
        if uuid in self._modes:
            kept: Virtualization | None = self._modes[uuid]
            return kept
        failures = calls.records.failures
        mode = MODES.get(calls.ask(uuid, "nvmlDeviceGetVirtualizationMode", handle))
        if calls.records.failures == failures:
            self._modes.add(uuid, mode)
        else:
            self._modes.fail(uuid)
            calls.records.note_until_due(uuid, GROUP)
        return mode

    def _vgpus(self, calls: Calls, uuid: str, handle: Any) -> tuple[VgpuReading, ...] | None:
        active = calls.ask(uuid, "nvmlDeviceGetActiveVgpus", handle, none=())
        if active is None:
            return None
        # "" for a vGPU that was stopped after it was listed.
        uuids = {number: calls.ask(uuid, "nvmlVgpuInstanceGetUUID", number, none="") for number in active}
        if None in uuids.values():
            return None
        sampled = self._samples.read(calls, uuid, handle, UTILIZATION)
        latest = latest_time()
        # Oldest first, so that the newest one of each vGPU remains.
        samples = {sample.vgpuInstance: sample for sample in sampled or () if sample.timeStamp <= latest}
        vgpus = [self._vgpu(calls, uuid, number, name, samples) for number, name in uuids.items() if name]
        running = {vgpu.uuid for vgpu in vgpus}
        for stopped in self._running.get(uuid, set()) - running:
            calls.records.forget_unsupported(stopped)
        self._running[uuid] = running
        return tuple(sorted(vgpus, key=lambda vgpu: vgpu.uuid))

    def _vgpu(self, calls: Calls, gpu: str, number: int, uuid: str, samples: dict[int, Any]) -> VgpuReading:
        # Calls are unsupported for each vGPU separately; failures count for the GPU.
        calls.records.parents[uuid] = gpu
        vgpu_type = self._type(calls, uuid, number)
        gi = calls.ask(uuid, "nvmlVgpuInstanceGetGpuInstanceId", number)
        vm_id = calls.ask(uuid, "nvmlVgpuInstanceGetVmID", number)
        # A time-sliced vGPU has no instance; in MIG mode nothing meters vGPUs. An idle vGPU has a sample, so
        # without one its use is unknown.
        sample = samples.get(number) if gi in (None, NO_INSTANCE) else None
        shares = [None if sample is None else sampled_percent(getattr(sample, name).uiVal) for name in SHARES]
        sm, memory, encoder, decoder = shares
        if sample is not None and None in shares:
            calls.count(gpu, calls.form(gpu, UTILIZATION), IMPOSSIBLE_SAMPLE)
        return VgpuReading(
            uuid=uuid,
            mdev_uuid=calls.ask(uuid, "nvmlVgpuInstanceGetMdevUUID", number) or None,
            # The binding returns (bytes, type of the id).
            vm_id=None if vm_id is None else vm_id[0].decode(errors="replace") or None,
            type_name=vgpu_type.name,
            gi=None if gi == NO_INSTANCE else gi,
            memory_total=vgpu_type.memory,
            memory_used=_bytes(calls, uuid, "nvmlVgpuInstanceGetFbUsage", number),
            licensed=_licensed(calls, uuid, number),
            sm_percent=sm,
            memory_percent=memory,
            encoder_percent=encoder,
            decoder_percent=decoder,
        )

    def _type(self, calls: Calls, uuid: str, number: int) -> VgpuType:
        """Return the type of a vGPU; it is kept if it is complete."""
        key = calls.ask(uuid, "nvmlVgpuInstanceGetType", number)
        if key is None:
            return VgpuType(None, None)
        if key in self._types:
            return self._types[key]
        vgpu_type = VgpuType(
            calls.ask(uuid, "nvmlVgpuTypeGetName", key) or None,
            _bytes(calls, uuid, "nvmlVgpuTypeGetFramebufferSize", key) or None,
        )
        if None not in (vgpu_type.name, vgpu_type.memory):
            self._types[key] = vgpu_type
        return vgpu_type


def _bytes(calls: Calls, uuid: str, name: str, number: int) -> int | None:
    """Return the bytes that a call about a vGPU or a type answers."""
    answer = calls.ask(uuid, name, number)
    size: int | None = believed(calls, uuid, name, None if answer is None else known(answer), BYTES)
    return size


def _licensed(calls: Calls, uuid: str, number: int) -> bool | None:
    names = ("nvmlVgpuInstanceGetLicenseInfo_v2", "nvmlVgpuInstanceGetLicenseStatus")
    answer = calls.first(uuid, number, [(name, ()) for name in names])
    if answer is None:
        return None
    if isinstance(answer, int):
        return bool(answer)
    if not answer.isLicensed and answer.currentState in NOT_REQUESTED:
        return None
    return bool(answer.isLicensed)


def _license(calls: Calls, uuid: str, handle: Any) -> License | None:
    """Return the license of the enabled feature of this guest, else of the first one."""
    answer = calls.ask(uuid, "nvmlDeviceGetGridLicensableFeatures_v4", handle)
    if answer is None or not answer.isGridLicenseSupported:
        return None
    features = answer.gridLicensableFeatures[: answer.licensableFeaturesCount]
    if not features:
        return None
    feature = max(features, key=lambda feature: bool(feature.featureEnabled))
    licensed = bool(feature.featureState)
    return License(
        product=text_field(feature, "productName"),
        licensed=licensed,
        state="licensed" if licensed else "unlicensed",
        expires=_expiry(feature.licenseExpiry),
    )


def _expiry(expiry: Any) -> float | None:
    """Return the Unix time of an expiry in UTC; None without an expiry, or for an invalid date."""
    if expiry.status != EXPIRY_VALID:
        return None
    day = (expiry.year, expiry.month, expiry.day)
    try:
        return datetime(*day, expiry.hour, expiry.min, expiry.sec, tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        return None
