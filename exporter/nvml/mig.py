"""The MIG devices of a GPU, looked for in every sweep.

Handles are not kept: the handle of a destroyed instance is invalid, and its ids are reused. Identities are
kept while the driver reports changes of the layout by events, and gives the same handle for each slot. Fixed
facts are kept by identity: ids, UUID and profile.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from exporter.model import MigReading
from exporter.nvml.driver.binding import address_of
from exporter.nvml.driver.calls import CORE, Calls, DeviceHangsError
from exporter.nvml.mig_facts import MOST_SLICES, MigFacts, MigIdentity, read_facts
from exporter.nvml.readings.answers import BAR1, MEMORY, ask_row, is_skipped
from exporter.nvml.readings.gpu_processes import InstanceIds, running, without_doubles

# Memory slices of a GPU by its compute slices, if they differ.
MEMORY_SLICES = {7: 8}
# Repartitioning takes less time than so many enumerations.
MAX_REPEATS = 3

# A MIG device by slot: its identity and its current handle.
Slots = dict[int, tuple[MigIdentity, Any]]


@dataclass(frozen=True, slots=True)
class KnownSlots:
    """All slots of a GPU, and the devices in them with the addresses of their handles."""

    slices: int
    devices: dict[int, tuple[MigIdentity, int]]


@dataclass(frozen=True, slots=True)
class GpuLayout:
    """The partitioning of a GPU in one sweep."""

    # Whether MIG mode is enabled; None if unknown.
    enabled: bool | None
    # Compute slices of the whole GPU.
    slices: int | None = None
    # The MIG devices with their current handles; None if unknown.
    devices: tuple[tuple[MigIdentity, Any], ...] | None = ()
    # False if there may be more MIG devices: some slots could not be read.
    complete: bool = True
    # The devices that were last seen in those slots.
    unread: tuple[MigIdentity, ...] = ()
    # Whether MIG mode will be enabled after the next GPU reset.
    pending: bool | None = None
    # The handle of the GPU.
    gpu: Any = None

    def sharers(self) -> Counter[int]:
        """Return the number of MIG devices by GPU instance, including unread ones."""
        return Counter(identity.gi for identity in self.identities())

    def identities(self) -> tuple[MigIdentity, ...]:
        """Return the identities of all MIG devices, including unread ones, in the order of their ids."""
        return tuple(sorted((*(identity for identity, _ in self.devices or ()), *self.unread)))


class MigReader:
    """Reads the MIG devices of every GPU; keeps the fixed facts of those that exist.

    ``skip`` as for DeviceReader.
    """

    def __init__(self, skip: Collection[str] = ()) -> None:
        self._has_bar1 = not is_skipped(BAR1.into, skip)
        self._facts: dict[MigIdentity, MigFacts] = {}
        self._slots: dict[str, dict[int, MigIdentity]] = {}
        # Of GPUs without a change of the layout since.
        self._known: dict[str, KnownSlots] = {}

    def enumerate_again(self, uuid: str | None = None) -> None:
        """Do not rely on what was in the slots of a GPU, or of all."""
        if uuid is None:
            self._known.clear()
        else:
            self._known.pop(uuid, None)

    def layout(self, calls: Calls, uuid: str, handle: Any, *, told: bool = False) -> GpuLayout:
        """Return the MIG devices of a GPU. Raises as ``Calls.ask`` does.

        ``told``: an event of the GPU has preceded every change of its layout since before this sweep, and
        ``enumerate_again`` was called after it.
        """
        calls.group = CORE
        failures = calls.failures()
        mode = calls.ask(uuid, "nvmlDeviceGetMigMode", handle)
        if mode is None:
            unsupported = calls.failures() == failures
            return GpuLayout(enabled=False) if unsupported else GpuLayout(enabled=None, devices=None)
        pending = mode[1] == 1
        if mode[0] != 1:
            return GpuLayout(enabled=False, pending=pending)
        known = self._known.pop(uuid, None) if told else None
        devices = None if known is None else _same_devices(calls, uuid, handle, known)
        failed: set[int] = set()
        if known is not None and devices is not None:
            slices: int | None = known.slices
        else:
            slices = calls.ask(uuid, "nvmlDeviceGetMaxMigDeviceCount", handle)
            if slices is None or slices > MOST_SLICES:
                return GpuLayout(enabled=True, devices=None, pending=pending)
            devices, failed = self._stable_slots(calls, uuid, handle, slices)
        # An identity of which a call has failed is asked for again in the next sweep.
        if told and not failed and slices is not None and calls.failures() == failures:
            self._known[uuid] = _known_slots(slices, devices)
        unread = self._unread(uuid, {slot: identity for slot, (identity, _) in devices.items()}, failed)
        return GpuLayout(
            enabled=True,
            slices=slices,
            devices=tuple(sorted(devices.values(), key=lambda device: device[0])),
            complete=not failed,
            unread=unread,
            pending=pending,
            gpu=handle,
        )

    def read(self, calls: Calls, layout: GpuLayout, gpu_memory: int | None) -> tuple[MigReading, ...] | None:
        """Return the readings of all MIG devices of a GPU with ``gpu_memory`` bytes; None if unknown.

        Raises as ``Calls.ask`` does.
        """
        if layout.devices is None:
            return None
        sharers = layout.sharers()
        memory_slice = None
        if layout.slices and gpu_memory is not None:
            memory_slice = gpu_memory / MEMORY_SLICES.get(layout.slices, layout.slices)
        readings = []
        for device in layout.devices:
            with calls.about(device[0].uuid):
                readings.append(self._read(calls, layout, device, sharers, memory_slice))
        return tuple(without_doubles(readings))

    def forget(self, existing: set[MigIdentity]) -> None:
        """Drop the facts of MIG devices that no longer exist."""
        self._facts = {identity: facts for identity, facts in self._facts.items() if identity in existing}
        self._slots = {
            uuid: slots for uuid, slots in self._slots.items() if existing.issuperset(slots.values())
        }

    def _stable_slots(self, calls: Calls, uuid: str, parent: Any, slices: int) -> tuple[Slots, set[int]]:
        """Return the devices by slot and the failed slots; if they changed, after two equal enumerations.

        While a GPU is repartitioned, a single enumeration could mix old and new devices.
        """
        devices, failed = _read_slots(calls, uuid, parent, slices)
        last = self._slots.get(uuid), set[int]()
        for _ in range(MAX_REPEATS):
            current = {slot: identity for slot, (identity, _) in devices.items()}, failed
            if last in ((None, failed), current):
                break
            last = current
            devices, failed = _read_slots(calls, uuid, parent, slices)
        return devices, failed

    def _unread(
        self, uuid: str, devices: dict[int, MigIdentity], failed: set[int]
    ) -> tuple[MigIdentity, ...]:
        """Return the devices that were last seen in the failed slots and are not in another slot now."""
        places = {(identity.gi, identity.ci) for identity in devices.values()}
        uuids = {identity.uuid for identity in devices.values()}
        unread = {
            slot: identity
            for slot, identity in self._slots.get(uuid, {}).items()
            if slot in failed and (identity.gi, identity.ci) not in places and identity.uuid not in uuids
        }
        self._slots[uuid] = devices | unread
        return tuple(unread.values())

    def _read(
        self,
        calls: Calls,
        layout: GpuLayout,
        device: tuple[MigIdentity, Any],
        sharers: Counter[int],
        memory_slice: float | None,
    ) -> MigReading:
        identity, handle = device
        facts = self._facts.get(identity)
        if facts is None:
            facts, complete = read_facts(calls, identity, handle, layout.gpu)
            if complete:
                self._facts[identity] = facts
        memory = ask_row(calls, identity.uuid, handle, MEMORY)
        bar1 = ask_row(calls, identity.uuid, handle, BAR1) if self._has_bar1 else None
        memory_slices = None
        if facts.instance_memory is not None and memory_slice is not None:
            memory_slices = max(1, round(facts.instance_memory / memory_slice))
        calls.group = "processes"
        # In an incomplete layout, there may be other GPU instances.
        ids = InstanceIds(identity.gi, identity.ci, sharers if layout.complete else ())
        return MigReading(
            uuid=identity.uuid,
            gi=identity.gi,
            ci=identity.ci,
            profile=facts.profile,
            memory=memory,
            bar1=bar1,
            memory_shared=sharers[identity.gi] > 1,
            compute_slices=facts.compute_slices,
            instance_slices=facts.instance_slices,
            memory_slices=memory_slices,
            multiprocessors=facts.multiprocessors,
            engines=facts.engines,
            gi_profile=facts.placement.profile,
            gi_start=facts.placement.start,
            gi_size=facts.placement.size,
            processes=running(calls, identity.uuid, handle, None if memory is None else memory.total, ids),
        )


def _read_slots(calls: Calls, uuid: str, parent: Any, slices: int) -> tuple[Slots, set[int]]:
    """Return the devices in the slots of a GPU, which are sparse, and the slots that failed or hang."""
    devices: Slots = {}
    failed: set[int] = set()
    for slot in range(slices):
        failures = calls.failures()
        try:
            with calls.about(f"{uuid}/{slot}", uuid):
                ids, handle = _read_slot(calls, uuid, parent, slot)
            if ids is not None:
                with calls.about(ids[2]):
                    name = calls.ask(ids[2], "nvmlDeviceGetName", handle) or ""
                devices[slot] = MigIdentity(*ids, name), handle
            elif handle is not None or calls.failures() > failures:
                # The slot is not empty, or may not be.
                failed.add(slot)
        except DeviceHangsError:
            failed.add(slot)
    return devices, failed


def _read_slot(calls: Calls, uuid: str, parent: Any, slot: int) -> tuple[tuple[int, int, str] | None, Any]:
    """Return (GPU instance, compute instance, UUID) and the handle in a slot; None for what is unknown."""
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


def _known_slots(slices: int, devices: Slots) -> KnownSlots:
    return KnownSlots(
        slices, {slot: (identity, address_of(handle)) for slot, (identity, handle) in devices.items()}
    )


def _same_devices(calls: Calls, uuid: str, parent: Any, known: KnownSlots) -> Slots | None:
    """Return the known devices with their current handles; None if a slot has another one, or may have."""
    devices: Slots = {}
    failures = calls.failures()
    for slot in range(known.slices):
        try:
            with calls.about(f"{uuid}/{slot}", uuid):
                handle = calls.ask(uuid, "nvmlDeviceGetMigDeviceHandleByIndex", parent, slot)
        except DeviceHangsError:
            return None
        identity, address = known.devices.get(slot, (None, 0))
        if (0 if handle is None else address_of(handle)) != address or calls.failures() > failures:
            return None
        if identity is not None:
            devices[slot] = identity, handle
    return devices
