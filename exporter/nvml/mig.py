"""The MIG devices of a GPU, found anew at every sweep.

Handles are never kept: when an instance is destroyed its handle dies and its numbers are given to the
next one. What is fixed about an instance is kept by what it *is*: ids, uuid and profile.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from exporter.model import MigReading
from exporter.nvml.driver.calls import CORE, Calls, DeviceHangsError
from exporter.nvml.mig_placement import Placement, placement
from exporter.nvml.readings.answers import ask_row, number
from exporter.nvml.readings.gpu_processes import Instance, running, without_doubles
from exporter.nvml.readings.memory import BAR1, MEMORY

PROFILE_MARK = " MIG "
MEMORY_SLICES = {7: 8}
# No GPU is cut into that many, nor has so much memory.
MOST_SLICES = 64
MOST_MEBIBYTES = 1 << 30
# Whoever cuts a GPU is done long before it has been looked at so often.
LOOKS = 3
# Fields of the driver's attributes by engine.
ENGINES = {
    "copy": "sharedCopyEngineCount",
    "decoder": "sharedDecoderCount",
    "encoder": "sharedEncoderCount",
    "jpeg": "sharedJpegCount",
    "ofa": "sharedOfaCount",
}

# Ids of a GPU instance and of a compute instance in it, and the uuid of the two.
Place = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class Layout:
    """How a GPU is cut: ``enabled`` None where it was not told, ``slices`` of the whole GPU, handles now.

    ``devices`` is None when the driver did not say whether there are any; with ``complete`` False there may
    be more than those: ``untold`` are the last that were seen in the slots that failed. ``pending``: whether
    it will be cut when it has been reset. ``gpu`` is the handle of the GPU itself.
    """

    enabled: bool | None
    slices: int | None = None
    devices: tuple[tuple["Fingerprint", Any], ...] | None = ()
    complete: bool = True
    untold: tuple["Fingerprint", ...] = ()
    pending: bool | None = None
    gpu: Any = None

    def sharers(self) -> Counter[int]:
        """Count the devices in each GPU instance, those too that did not tell."""
        return Counter(mark.gi for mark in self.marks())

    def marks(self) -> tuple["Fingerprint", ...]:
        """Return what the devices are, those too that did not tell, in the order of their ids."""
        return tuple(sorted((*(mark for mark, _ in self.devices or ()), *self.untold)))


@dataclass(frozen=True, slots=True, order=True)
class Fingerprint:
    """What makes a MIG device the same one as at the last poll.

    The name tells the profile: a device cut anew in the same place gets the same numbers and UUID.
    """

    gi: int
    ci: int
    uuid: str
    name: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What does not change while a MIG device exists."""

    profile: str | None
    compute_slices: int | None
    instance_slices: int | None
    instance_memory: int | None
    multiprocessors: int | None
    engines: Mapping[str, int] = field(default_factory=dict)
    placement: Placement = field(default_factory=Placement)


class MigReader:
    """Reads the MIG devices of every GPU; keeps the fixed facts of those that still exist."""

    def __init__(self) -> None:
        self._facts: dict[Fingerprint, Facts] = {}
        self._slots: dict[str, dict[int, Fingerprint]] = {}

    def layout(self, calls: Calls, uuid: str, handle: Any) -> Layout:
        """Enumerate the MIG devices of a GPU; the slots are sparse, so each one is asked for."""
        calls.group = CORE
        failures = calls.failures()
        mode = calls.ask(uuid, "nvmlDeviceGetMigMode", handle)
        if mode is None:
            told = calls.failures() == failures
            return Layout(enabled=False) if told else Layout(enabled=None, devices=None)
        pending = mode[1] == 1
        if mode[0] != 1:
            return Layout(enabled=False, pending=pending)
        slices = calls.ask(uuid, "nvmlDeviceGetMaxMigDeviceCount", handle)
        if slices is None or slices > MOST_SLICES:
            return Layout(enabled=True, devices=None, pending=pending)
        found, failed = self._settled(calls, uuid, handle, slices)
        untold = self._untold(uuid, {slot: mark for slot, (mark, _) in found.items()}, failed)
        return Layout(
            enabled=True,
            slices=slices,
            devices=tuple(sorted(found.values(), key=lambda device: device[0])),
            # A slot that failed is not an empty one.
            complete=not failed,
            untold=untold,
            pending=pending,
            gpu=handle,
        )

    def read(self, calls: Calls, layout: Layout, gpu_memory: int | None) -> tuple[MigReading, ...] | None:
        """Read every MIG device of one GPU, whose own memory is ``gpu_memory`` bytes."""
        if layout.devices is None:
            return None
        sharers = layout.sharers()
        memory_slice = _memory_slice(layout.slices, gpu_memory)
        readings = []
        for device in layout.devices:
            with calls.about(device[0].uuid):
                readings.append(self._read(calls, layout, device, sharers, memory_slice))
        return tuple(without_doubles(readings))

    def forget(self, existing: set[Fingerprint]) -> None:
        """Drop what was known of MIG devices that are gone."""
        self._facts = {mark: facts for mark, facts in self._facts.items() if mark in existing}
        self._slots = {
            uuid: slots for uuid, slots in self._slots.items() if existing.issuperset(slots.values())
        }

    def _settled(
        self, calls: Calls, uuid: str, parent: Any, slices: int
    ) -> tuple[dict[int, tuple[Fingerprint, Any]], set[int]]:
        """Look into the slots; where they are not as before, look again until two looks agree.

        A GPU that is cut anew between two slots would be taken for half of the old and half of the new.
        """
        found, failed = _look(calls, uuid, parent, slices)
        before = self._slots.get(uuid), set[int]()
        for _ in range(LOOKS):
            seen = {slot: mark for slot, (mark, _) in found.items()}, failed
            if before in ((None, failed), seen):
                break
            before = seen
            found, failed = _look(calls, uuid, parent, slices)
        return found, failed

    def _untold(self, uuid: str, told: dict[int, Fingerprint], failed: set[int]) -> tuple[Fingerprint, ...]:
        """Return what was last seen in the slots that failed, but for what is elsewhere now."""
        places, uuids = {(mark.gi, mark.ci) for mark in told.values()}, {mark.uuid for mark in told.values()}
        kept = {
            slot: mark
            for slot, mark in self._slots.get(uuid, {}).items()
            if slot in failed and (mark.gi, mark.ci) not in places and mark.uuid not in uuids
        }
        self._slots[uuid] = told | kept
        return tuple(kept.values())

    def _read(
        self,
        calls: Calls,
        layout: Layout,
        device: tuple[Fingerprint, Any],
        sharers: Counter[int],
        memory_slice: float | None,
    ) -> MigReading:
        mark, handle = device
        facts = self._facts.get(mark) or self._ask_facts(calls, mark, handle, layout.gpu)
        frame_buffer = ask_row(calls, mark.uuid, handle, MEMORY)
        bar1 = ask_row(calls, mark.uuid, handle, BAR1)
        total = frame_buffer.total if frame_buffer is not None else None
        calls.group = "processes"
        # Where some did not tell, there may be more GPU instances than these.
        instance = Instance(mark.gi, mark.ci, sharers if layout.complete else ())
        return MigReading(
            uuid=mark.uuid,
            gi=mark.gi,
            ci=mark.ci,
            profile=facts.profile,
            memory=frame_buffer,
            bar1=bar1,
            memory_shared=sharers[mark.gi] > 1,
            compute_slices=facts.compute_slices,
            instance_slices=facts.instance_slices,
            memory_slices=_count(facts.instance_memory, memory_slice),
            multiprocessors=facts.multiprocessors,
            engines=facts.engines,
            gi_profile=facts.placement.profile,
            gi_start=facts.placement.start,
            gi_size=facts.placement.size,
            processes=running(calls, mark.uuid, handle, total, instance),
        )

    def _ask_facts(self, calls: Calls, mark: Fingerprint, handle: Any, gpu: Any) -> Facts:
        """Ask the facts of a MIG device until it has told them all."""
        calls.group = CORE
        failures = calls.failures()
        attributes = calls.ask(mark.uuid, "nvmlDeviceGetAttributes", handle)
        place = Placement() if attributes is None else placement(calls, mark.uuid, gpu, mark.gi)
        facts = Facts(
            profile=mark.name.partition(PROFILE_MARK)[2] or None,
            compute_slices=_slices(getattr(attributes, "computeInstanceSliceCount", 0)),
            instance_slices=_slices(getattr(attributes, "gpuInstanceSliceCount", 0)),
            instance_memory=_bytes(getattr(attributes, "memorySizeMB", 0)),
            multiprocessors=number(getattr(attributes, "multiprocessorCount", 0)) or None,
            engines=_engines(attributes) if attributes is not None else {},
            placement=place,
        )
        if attributes is not None and calls.failures() == failures:
            self._facts[mark] = facts
        return facts


def _look(
    calls: Calls, uuid: str, parent: Any, slices: int
) -> tuple[dict[int, tuple[Fingerprint, Any]], set[int]]:
    """Look into every slot of a GPU; return what is in them, and those that failed to tell or hang."""
    found: dict[int, tuple[Fingerprint, Any]] = {}
    failed: set[int] = set()
    for slot in range(slices):
        failures = calls.failures()
        try:
            with calls.about(f"{uuid}/{slot}", uuid):
                place, handle = _place(calls, uuid, parent, slot)
            if place is not None:
                with calls.about(place[2]):
                    found[slot] = Fingerprint(*place, _name(calls, place[2], handle)), handle
            elif handle is not None or calls.failures() > failures:
                # There is one, which does not say who it is.
                failed.add(slot)
        except DeviceHangsError:
            failed.add(slot)
    return found, failed


def _name(calls: Calls, mig_uuid: str, handle: Any) -> str:
    """Ask what a MIG device is called; one that does not say is there all the same."""
    return calls.ask(mig_uuid, "nvmlDeviceGetName", handle) or ""


def _place(calls: Calls, uuid: str, parent: Any, slot: int) -> tuple[Place | None, Any]:
    handle = calls.ask(uuid, "nvmlDeviceGetMigDeviceHandleByIndex", parent, slot)
    if handle is None:
        return None, None
    mig_uuid = calls.ask(uuid, "nvmlDeviceGetUUID", handle)
    gi = calls.ask(uuid, "nvmlDeviceGetGpuInstanceId", handle)
    ci = calls.ask(uuid, "nvmlDeviceGetComputeInstanceId", handle)
    if not mig_uuid or gi is None or ci is None:
        return None, handle
    calls.parents[mig_uuid] = uuid
    return (gi, ci, mig_uuid), handle


def _engines(attributes: Any) -> dict[str, int]:
    """Count the engines of the GPU instance, which its compute instances share."""
    counts = {engine: number(getattr(attributes, name)) for engine, name in ENGINES.items()}
    return {engine: count for engine, count in counts.items() if count is not None}


def _memory_slice(compute_slices: int | None, gpu_memory: int | None) -> float | None:
    """Return the bytes of one memory slice: memory is cut in 8 where compute is cut in 7, else alike."""
    if not compute_slices or gpu_memory is None:
        return None
    return gpu_memory / MEMORY_SLICES.get(compute_slices, compute_slices)


def _count(instance_memory: int | None, memory_slice: float | None) -> int | None:
    """Count memory slices by size: the driver tells the memory of an instance, not its slices."""
    if instance_memory is None or memory_slice is None:
        return None
    return max(1, round(instance_memory / memory_slice))


def _slices(told: int) -> int | None:
    """Keep a number of slices that a GPU can have; a driver that does not know it may say 0 or all ones."""
    return told if 0 < told <= MOST_SLICES else None


def _bytes(mebibytes: int) -> int | None:
    return mebibytes << 20 if 0 < mebibytes <= MOST_MEBIBYTES else None
