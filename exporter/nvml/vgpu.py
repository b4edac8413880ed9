"""Virtual GPUs: those that a GPU of this host runs, and the license of the one that this guest has."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from exporter.model import License, VgpuReading
from exporter.model.hardware import Virtualization
from exporter.nvml.driver.calls import Calls
from exporter.nvml.readings.answers import long_number, sampled_percent
from exporter.nvml.readings.samples import SampleReader, latest_time

GROUP = "vgpu"
MODES: dict[int, Virtualization] = {
    0: "none",
    1: "passthrough",
    2: "vgpu_guest",
    3: "vgpu_host",
    4: "vsga_host",
}
# In the place of a GPU instance: this vGPU has the whole GPU's engines in turn with others.
NO_INSTANCE = 0xFFFFFFFF
# Before the guest's driver has started, nobody has asked for a license yet.
NOT_ASKED_YET = frozenset({0, 1})
# The names that the binding has for these numbers are tuples.
EXPIRY_VALID = 2
# By field of the reading, the share of the GPU's time in a sample.
SHARES = {
    "sm_percent": "smUtil",
    "memory_percent": "memUtil",
    "encoder_percent": "encUtil",
    "decoder_percent": "decUtil",
}


@dataclass(frozen=True, slots=True)
class VgpuType:
    """What all vGPUs of a type have in common; ``memory`` is in bytes."""

    name: str | None
    memory: int | None


class VgpuReader:
    """Reads the vGPUs of every GPU; keeps what their types are, and what is new in the driver's samples.

    ``clock`` as for samples.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._types: dict[int, VgpuType] = {}
        self._samples = SampleReader(clock)
        self._running: dict[str, set[str]] = {}

    def read(self, calls: Calls, uuid: str, handle: Any) -> dict[str, Any]:
        """Return the fields ``virtualization``, ``license`` and ``vgpus`` of a GPU's reading.

        Raises as ``Calls.ask`` does.
        """
        calls.group = GROUP
        mode = MODES.get(calls.ask(uuid, "nvmlDeviceGetVirtualizationMode", handle))
        return {
            "virtualization": mode,
            "license": _license(calls, uuid, handle) if mode == "vgpu_guest" else None,
            "vgpus": self._vgpus(calls, uuid, handle) if mode == "vgpu_host" else None,
        }

    def forget(self, known: Iterable[str]) -> None:
        """Keep what belongs to these GPUs only."""
        keep = set(known)
        self._samples.forget(keep)
        self._running = {uuid: vgpus for uuid, vgpus in self._running.items() if uuid in keep}

    def _vgpus(self, calls: Calls, uuid: str, handle: Any) -> tuple[VgpuReading, ...] | None:
        active = calls.ask(uuid, "nvmlDeviceGetActiveVgpus", handle, none=())
        if active is None:
            return None
        # "" is one that has gone since it was listed.
        uuids = {number: calls.ask(uuid, "nvmlVgpuInstanceGetUUID", number, none="") for number in active}
        if None in uuids.values():
            # Without knowing who they all are it is not known how many there are for each of them either.
            return None
        use = self._use(calls, uuid, handle)
        read = (self._vgpu(calls, uuid, number, name, use) for number, name in uuids.items() if name)
        found = sorted(read, key=lambda vgpu: vgpu.uuid)
        self._note_running(calls, uuid, {vgpu.uuid for vgpu in found})
        return tuple(found)

    def _use(self, calls: Calls, uuid: str, handle: Any) -> dict[int, Any] | None:
        """Return the newest sample of each vGPU that ran since the last read, by the driver's number."""
        samples = self._samples.read(calls, uuid, handle, "nvmlDeviceGetVgpuUtilization")
        if samples is None:
            return None
        latest = latest_time()
        return {each.vgpuInstance: each for each in samples if each.timeStamp <= latest}

    def _vgpu(
        self, calls: Calls, gpu: str, number: int, uuid: str, use: dict[int, Any] | None
    ) -> VgpuReading:
        # What one vGPU does not support says nothing of its neighbours.
        calls.parents[uuid] = gpu
        kind = self._type(calls, uuid, number)
        gi = _instance(calls.ask(uuid, "nvmlVgpuInstanceGetGpuInstanceId", number))
        return VgpuReading(
            uuid=uuid,
            mdev_uuid=calls.ask(uuid, "nvmlVgpuInstanceGetMdevUUID", number) or None,
            vm_id=_vm_id(calls.ask(uuid, "nvmlVgpuInstanceGetVmID", number)),
            type_name=kind.name,
            gi=gi,
            memory_total=kind.memory,
            memory_used=_bytes(calls.ask(uuid, "nvmlVgpuInstanceGetFbUsage", number)),
            licensed=_licensed(calls, uuid, number),
            **_shares(number, use if gi is None else None),
        )

    def _type(self, calls: Calls, uuid: str, number: int) -> VgpuType:
        """Ask what a type is once; an answer that is not whole is not kept."""
        key = calls.ask(uuid, "nvmlVgpuInstanceGetType", number)
        if key is None:
            return VgpuType(None, None)
        if key in self._types:
            return self._types[key]
        kind = VgpuType(
            calls.ask(uuid, "nvmlVgpuTypeGetName", key) or None,
            _bytes(calls.ask(uuid, "nvmlVgpuTypeGetFramebufferSize", key)) or None,
        )
        if None not in (kind.name, kind.memory):
            self._types[key] = kind
        return kind

    def _note_running(self, calls: Calls, gpu: str, running: set[str]) -> None:
        """Drop what was kept of vGPUs that have gone."""
        for uuid in self._running.get(gpu, set()) - running:
            calls.forget_unsupported(uuid)
        self._running[gpu] = running


def _bytes(answer: int | None) -> int | None:
    return None if answer is None else long_number(answer)


def _instance(answer: int | None) -> int | None:
    return None if answer == NO_INSTANCE else answer


def _vm_id(answer: tuple[bytes, int] | None) -> str | None:
    """Read the name that the hypervisor has for the machine; the binding leaves it as bytes."""
    return answer[0].decode(errors="replace") or None if answer is not None else None


def _licensed(calls: Calls, uuid: str, number: int) -> bool | None:
    names = ("nvmlVgpuInstanceGetLicenseInfo_v2", "nvmlVgpuInstanceGetLicenseStatus")
    answer = calls.first(uuid, number, [(name, ()) for name in names])
    if answer is None:
        return None
    if isinstance(answer, int):
        return bool(answer)
    if not answer.isLicensed and answer.currentState in NOT_ASKED_YET:
        return None
    return bool(answer.isLicensed)


def _shares(number: int, use: dict[int, Any] | None) -> dict[str, int | None]:
    """Return the percentages of one vGPU; nothing meters one inside MIG.

    The driver has a sample for each that runs, also for an idle one: without one nothing was seen.
    """
    if use is None or number not in use:
        return {}
    return {field: sampled_percent(getattr(use[number], name).uiVal) for field, name in SHARES.items()}


def _license(calls: Calls, uuid: str, handle: Any) -> License | None:
    """Read the license of the feature that this guest has switched on, else of the first one it could."""
    answer = calls.ask(uuid, "nvmlDeviceGetGridLicensableFeatures_v4", handle)
    if answer is None or not answer.isGridLicenseSupported:
        return None
    features = answer.gridLicensableFeatures[: answer.licensableFeaturesCount]
    if not features:
        return None
    feature = max(features, key=lambda each: bool(each.featureEnabled))
    licensed = bool(feature.featureState)
    return License(
        product=_text(feature, "productName"),
        licensed=licensed,
        state="licensed" if licensed else "unlicensed",
        expires=_moment(feature.licenseExpiry),
    )


def _text(record: Any, field: str) -> str:
    # The binding's own way to the field raises where the bytes are no UTF-8.
    raw: bytes = object.__getattribute__(record, field)
    return raw.decode(errors="replace")


def _moment(expiry: Any) -> float | None:
    """Return the Unix time of an expiry in UTC; None for a license that has none, or a date that is none."""
    if expiry.status != EXPIRY_VALID:
        return None
    day = (expiry.year, expiry.month, expiry.day)
    try:
        return datetime(*day, expiry.hour, expiry.min, expiry.sec, tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        return None
