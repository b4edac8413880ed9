"""The partitioning of a GPU: which MIG devices it has, with their handles.

The handle of a destroyed instance is invalid, and its ids are reused. So the devices are enumerated in every
sweep, unless the driver reports changes of the layout by events. They are then kept until an event, and still
checked. In every sweep: whether a slot that was empty has a device now, and whether each device answers with
a memory of the same size, which is read anyway. With the slow readings: MIG mode, and UUID and name of each
device. If anything differs or fails, they are enumerated in the same sweep.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from exporter.model import Memory
from exporter.nvml.driver.calls import Calls, DeviceHangsError
from exporter.nvml.driver.library import SLOT
from exporter.nvml.driver.records import CORE
from exporter.nvml.readings.answers import MEMORY, ask_row, forget, keep_only

# Repartitioning takes less time than so many enumerations.
MAX_REPEATS = 3

# No GPU has more slices.
MOST_SLICES = 64


@dataclass(frozen=True, slots=True, order=True)
class MigIdentity:
    """Identity of a MIG device: equal to that of the last sweep only if it is the same device."""

    gi: int
    ci: int
    uuid: str
    name: str  # contains the profile: a new device in the same place gets the same ids and UUID


# A MIG device by slot: its identity and its current handle.
Slots = dict[int, tuple[MigIdentity, Any]]


@dataclass(frozen=True, slots=True)
class GpuLayout:
    """The partitioning of a GPU in one sweep."""

    enabled: bool | None  # whether MIG mode is enabled; None if unknown
    slices: int | None = None  # compute slices of the whole GPU
    # The MIG devices with their current handles; None if unknown.
    devices: tuple[tuple[MigIdentity, Any], ...] | None = ()
    complete: bool = True  # False if there may be more MIG devices: some slots could not be read
    unread: tuple[MigIdentity, ...] = ()  # the devices that were last seen in those slots
    pending: bool | None = None  # whether MIG mode will be enabled after the next GPU reset
    gpu: Any = None  # the handle of the GPU
    # Memory of devices that was read in this sweep already.
    memory: Mapping[MigIdentity, Memory] = field(default_factory=dict)

    def sharers(self) -> Counter[int]:
        """Return the number of MIG devices by GPU instance, including unread ones."""
        return Counter(identity.gi for identity in self.identities())

    def identities(self) -> tuple[MigIdentity, ...]:
        """Return the identities of all MIG devices, including unread ones, in the order of their ids."""
        return tuple(sorted((*(identity for identity, _ in self.devices or ()), *self.unread)))


class LayoutReader:
    """Reads the layout of every GPU; keeps those of which the driver reports changes."""

    def __init__(self) -> None:
        self._slots: dict[str, dict[int, MigIdentity]] = {}
        # Of GPUs without a change of the layout since.
        self._kept: dict[str, GpuLayout] = {}
        # Size of the memory of each device in bytes.
        self._sizes: dict[MigIdentity, int] = {}

    def enumerate_again(self, uuid: str | None = None) -> None:
        """Do not rely on the known devices of a GPU, or of all."""
        forget(uuid, self._kept)

    def read(
        self, calls: Calls, uuid: str, handle: Any, *, reported: bool = False, slow: bool = True
    ) -> GpuLayout:
        """Return the MIG devices of a GPU. Raises as ``Calls.ask`` does.

        ``reported``: an event of the GPU has preceded every change of its layout since before this sweep, and
        ``enumerate_again`` was called after it. ``slow``: known devices are checked completely.
        """
        kept = self._kept.pop(uuid, None) if reported else None
        layout = None if kept is None else self._checked(calls, uuid, handle, kept, slow=slow)
        if layout is not None:
            self._kept[uuid] = layout
            return layout
        failures = calls.records.failures
        layout = self._enumerate(calls, uuid, handle)
        # After a failure, the identity of a device may be incomplete.
        if reported and layout.devices and layout.complete and calls.records.failures == failures:
            self._kept[uuid] = layout
        return layout

    def note(self, identity: MigIdentity, memory: Memory | None) -> None:
        """Keep the size of the memory of a device, to recognise it in the next sweep."""
        if memory is None:
            self._sizes.pop(identity, None)
        else:
            self._sizes[identity] = memory.total

    def keep_only(self, existing: set[MigIdentity]) -> None:
        """Drop what is known of MIG devices that no longer exist."""
        keep_only(existing, self._sizes)
        self._slots = {
            uuid: slots for uuid, slots in self._slots.items() if existing.issuperset(slots.values())
        }

    def _checked(
        self, calls: Calls, uuid: str, handle: Any, kept: GpuLayout, *, slow: bool
    ) -> GpuLayout | None:
        """Return a known layout with the memory of its devices; None if anything speaks against it."""
        calls.group = CORE
        pending = kept.pending
        if slow:
            mode = calls.ask(uuid, "nvmlDeviceGetMigMode", handle)
            if mode is None or mode[0] != 1:
                return None
            pending = mode[1] == 1
        memory = {}
        try:
            for slot in sorted(set(range(kept.slices or 0)) - self._slots.get(uuid, {}).keys()):
                if not _is_empty(calls, uuid, handle, slot):
                    return None
            for identity, device in kept.devices or ():
                found = self._memory_of(calls, identity, device, slow=slow)
                if found is None:
                    return None
                memory[identity] = found
        except DeviceHangsError:
            return None
        return replace(kept, pending=pending, gpu=handle, memory=memory)

    def _memory_of(self, calls: Calls, identity: MigIdentity, handle: Any, *, slow: bool) -> Memory | None:
        """Return the memory of a known device; None if it is not known to be the same device."""
        size = self._sizes.get(identity)
        if size is None:
            return None
        with calls.about(identity.uuid):
            calls.group = CORE
            if slow and calls.ask(identity.uuid, "nvmlDeviceGetUUID", handle) != identity.uuid:
                return None
            if slow and calls.ask(identity.uuid, "nvmlDeviceGetName", handle) != identity.name:
                return None
            memory: Memory | None = ask_row(calls, identity.uuid, handle, MEMORY)
        return memory if memory is not None and memory.total == size else None

    def _enumerate(self, calls: Calls, uuid: str, handle: Any) -> GpuLayout:
        calls.group = CORE
        failures = calls.records.failures
        mode = calls.ask(uuid, "nvmlDeviceGetMigMode", handle)
        if mode is None:
            unsupported = calls.records.failures == failures
            return GpuLayout(enabled=False) if unsupported else GpuLayout(enabled=None, devices=None)
        pending = mode[1] == 1
        if mode[0] != 1:
            return GpuLayout(enabled=False, pending=pending)
        slices = calls.ask(uuid, "nvmlDeviceGetMaxMigDeviceCount", handle)
        if slices is None or slices > MOST_SLICES:
            return GpuLayout(enabled=True, devices=None, pending=pending)
        devices, failed = self._stable_slots(calls, uuid, handle, slices)
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


def _is_empty(calls: Calls, uuid: str, parent: Any, slot: int) -> bool:
    failures = calls.records.failures
    with calls.about(f"{uuid}/{slot}", uuid):
        return calls.ask(uuid, SLOT, parent, slot) is None and calls.records.failures == failures


def _read_slots(calls: Calls, uuid: str, parent: Any, slices: int) -> tuple[Slots, set[int]]:
    """Return the devices in the slots of a GPU, which are sparse, and the slots that failed or hang."""
    devices: Slots = {}
    failed: set[int] = set()
    for slot in range(slices):
        failures = calls.records.failures
        try:
            with calls.about(f"{uuid}/{slot}", uuid):
                ids, handle = _read_slot(calls, uuid, parent, slot)
            if ids is not None:
                with calls.about(ids[2]):
                    name = calls.ask(ids[2], "nvmlDeviceGetName", handle) or ""
                devices[slot] = MigIdentity(*ids, name), handle
            elif handle is not None or calls.records.failures > failures:
                # The slot is not empty, or may not be.
                failed.add(slot)
        except DeviceHangsError:
            failed.add(slot)
    return devices, failed


def _read_slot(calls: Calls, uuid: str, parent: Any, slot: int) -> tuple[tuple[int, int, str] | None, Any]:
    """Return (GPU instance, compute instance, UUID) and the handle in a slot; None for what is unknown."""
    handle = calls.ask(uuid, SLOT, parent, slot)
    if handle is None:
        return None, None
    mig_uuid = calls.ask(uuid, "nvmlDeviceGetUUID", handle)
    gi = calls.ask(uuid, "nvmlDeviceGetGpuInstanceId", handle)
    ci = calls.ask(uuid, "nvmlDeviceGetComputeInstanceId", handle)
    if not mig_uuid or gi is None or ci is None:
        return None, handle
    calls.records.parents[mig_uuid] = uuid
    return (gi, ci, mig_uuid), handle
