"""Events of GPUs: XID errors, ECC errors, changes of the MIG layout, recovery actions.

Only the wait, and the handling of its events, is in a thread of its own; the rest is in the thread of the
sweeps. NVML is thread-safe, and a wait releases the interpreter lock.
"""

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pynvml

from exporter.model import DeviceEvent, EventCount
from exporter.nvml.driver.binding import NO_INSTANCE, address_of, to_python
from exporter.nvml.driver.calls import (
    INVALID_ARGUMENT,
    UNSUPPORTED,
    Calls,
    DeviceLostError,
    DeviceSlowError,
    DriverGoneError,
)
from exporter.nvml.driver.library import error_name
from exporter.nvml.event_wait import EventWait

log = logging.getLogger(__name__)
GROUP = "events"
# Place of the calls for all GPUs together.
EVENTS = "events"
XID, MIG_CONFIG = 0x8, 0x100
# ``nvmlEventType*`` of nvml.h, as numbers: older bindings lack the names of the newer ones. Changes of
# clocks, of performance state and of the power source are left out: they are too frequent.
KINDS: Mapping[int, str] = {
    0x1: "single_bit_ecc",
    0x2: "double_bit_ecc",
    XID: "xid",
    MIG_CONFIG: "mig_config",
    0x200: "ecc_storm",
    0x400: "dram_retirement",
    0x800: "dram_retirement_failure",
    0x1000: "poison",
    0x2000: "fatal_poison",
    0x4000: "gpu_unavailable",
    0x8000: "recovery_action",
}
# A driver refuses the whole mask for one unknown bit, so newer events are registered separately.
CLASSIC = 0x1 | 0x2 | XID
NEWER = (sum(KINDS) & ~CLASSIC & ~MIG_CONFIG, MIG_CONFIG)
REGISTER = "nvmlDeviceRegisterEvents"
# Events after which the devices are read at once, at most every WAKE_SECONDS.
WAKING = frozenset({"xid", "mig_config", "gpu_unavailable"})
WAKE_SECONDS = 1.0
# The driver's code for an unknown XID, and the largest one.
UNKNOWN_XID = 999
# Number of the newest events that are kept.
RECENT = 256

# UUIDs of the MIG devices of a GPU, by ids of GPU instance and compute instance.
MigUuids = Mapping[tuple[int, int], str]


class EventKey(NamedTuple):
    """What events are counted by."""

    uuid: str
    mig_uuid: str
    kind: str
    xid: int | None


class EventLog:
    """Counts events and keeps the newest ones; thread-safe.

    Counts never fall: they are kept when the driver is opened again or a GPU is repartitioned.
    """

    def __init__(self) -> None:
        # The GPUs that are subscribed to.
        self.watched: frozenset[str] = frozenset()
        self._lock = threading.Lock()
        self._counts: dict[EventKey, EventCount] = {}
        self._recent: deque[DeviceEvent] = deque(maxlen=RECENT)
        # GPUs with an event since ``take_changed``.
        self._changed: set[str] = set()

    def note(self, event: DeviceEvent) -> None:
        """Count one event."""
        key = EventKey(event.uuid, event.mig_uuid, event.kind, event.xid)
        with self._lock:
            count = self._counts[key].count if key in self._counts else 0
            self._counts[key] = EventCount(**key._asdict(), count=count + 1, last=event.at)
            self._recent.append(event)
            self._changed.add(event.uuid)

    def take_changed(self) -> frozenset[str]:
        """Return the GPUs with an event since the last call."""
        with self._lock:
            changed = frozenset(self._changed)
            self._changed.clear()
        return changed

    def snapshot(self) -> tuple[frozenset[str], tuple[EventCount, ...], tuple[DeviceEvent, ...]]:
        """Return the GPUs that are subscribed to, all counts, and the newest events, oldest first."""
        with self._lock:
            watched, counts, recent = self.watched, tuple(self._counts.values()), tuple(self._recent)
        ordered = sorted(counts, key=lambda item: (item.uuid, item.mig_uuid, item.kind, item.xid or 0))
        return watched, tuple(ordered), recent


class EventWatcher:
    """Waits for the events of all GPUs in one thread, and records them in ``log``.

    ``wake`` is called in that thread when the devices should be read soon. All methods are for the thread of
    the sweeps, and none of them raises.
    """

    def __init__(self, calls: Calls, wake: Callable[[], None] | None = None) -> None:
        self.log = EventLog()
        self.wake = wake
        self._calls = calls
        self._wait: EventWait | None = None
        # Whether the driver does not support waiting for events.
        self._unsupported = False
        # GPU uuid by address of the handle; address of the registered handle by GPU uuid.
        self._uuids: dict[int, str] = {}
        self._registered: dict[str, int] = {}
        self._layouts: dict[str, MigUuids] = {}
        # GPUs that are subscribed to for changes of their MIG layout.
        self._telling: set[str] = set()
        # Whether to call ``wake``, and when it was last called (monotonic clock).
        self._wake_pending = False
        self._woken = 0.0
        self._logged: set[str] = set()

    def start(self, devices: Mapping[str, Any]) -> None:
        """Subscribe to the events of these GPUs (handle by uuid); to be called after every enumeration.

        Makes no call if it is subscribed to all of them. A failed wait is started again.
        """
        outer, self._calls.group = self._calls.group, GROUP
        if self._wait is None or self._wait.waits or self._remove_failed(self._wait):
            self._add_all(devices)
        self._calls.group = outer

    def stop(self) -> bool:
        """Stop waiting, before the driver is shut down.

        Return False if the thread hangs in the driver, which must then not be shut down.
        """
        self._unsupported = False
        return self._end()

    def hand_over(self, calls: Calls) -> None:
        """Use these calls from now on, in another thread: the thread of the former ones hangs."""
        self._calls = calls

    def note_layout(self, uuid: str, layout: MigUuids) -> None:
        """Set the MIG devices of a GPU, to which its XID events are attributed."""
        self._layouts[uuid] = layout

    def telling_layouts(self) -> frozenset[str]:
        """Return the GPUs whose MIG layout does not change without an event from now on."""
        return self.log.watched & self._telling

    def _end(self) -> bool:
        self.log.watched = frozenset()
        if self._wait is None:
            return True
        if not self._wait.end():
            self._warn_once(
                "the driver has not returned from a wait for events; GPU events are no longer reported"
            )
            return False
        event_set, self._wait, self._uuids = self._wait.event_set, None, {}
        self._registered.clear()
        self._telling.clear()
        # A registration that hangs may still write into the event set.
        if not self._calls.records.hanging:
            self._calls.free("nvmlEventSetFree", pynvml.nvmlEventSetFree, event_set)
        return True

    def _remove_failed(self, wait: EventWait) -> bool:
        """Remove a wait that has failed or hangs; return False if it still hangs."""
        if not self._end():
            return False
        self._unsupported = wait.code in UNSUPPORTED
        if wait.failure and not self._unsupported:
            self._calls.count("", "nvmlEventSetWait_v2", wait.failure)
        return True

    def _add_all(self, devices: Mapping[str, Any]) -> None:
        for uuid, handle in devices.items():
            address = address_of(handle)
            if not self._unsupported and self._registered.get(uuid) != address:
                with (
                    contextlib.suppress(DeviceLostError, DeviceSlowError, DriverGoneError),
                    self._calls.about(uuid),
                ):
                    self._add(uuid, handle, address)
        self.log.watched = frozenset(self._registered.keys() & devices.keys())
        if self._wait is not None and self._registered:
            self._wait.begin()
            if self._wait.failure:
                # The thread may have failed before ``watched`` was set above.
                self.log.watched = frozenset()

    def _add(self, uuid: str, handle: Any, address: int) -> None:
        """Register a GPU for the events that it supports; after a failure, the next sweep tries again."""
        supported = self._calls.ask(uuid, "nvmlDeviceGetSupportedEventTypes", handle) or 0
        if not supported & XID or not self._calls.supports(uuid, REGISTER):
            return
        if self._wait is None:
            # The event set is for all GPUs: a call that hangs must not exclude this one.
            with self._calls.about(EVENTS, ""):
                event_set = self._calls.ask("", "nvmlEventSetCreate")
            if event_set is None:
                return
            self._wait = EventWait(event_set, self._handle)
        # An event may arrive before the registration has returned.
        self._uuids = self._uuids | {address: uuid}
        if self._register(self._wait, uuid, handle, supported & CLASSIC):
            for newer in NEWER:
                registered = supported & newer and self._register(self._wait, uuid, handle, supported & newer)
                if registered and newer == MIG_CONFIG:
                    self._telling.add(uuid)
            self._registered[uuid] = address

    def _register(self, wait: EventWait, uuid: str, handle: Any, mask: int) -> bool:
        """Register a GPU for the events of ``mask``; return whether that succeeded."""
        try:
            self._calls.timed(REGISTER, pynvml.nvmlDeviceRegisterEvents, (handle, mask, wait.event_set))
        except pynvml.NVMLError as error:
            self._refused(uuid, mask, error)
            return False
        return True

    def _refused(self, uuid: str, mask: int, error: Any) -> None:
        classic = bool(mask & XID)
        if error.value in UNSUPPORTED and classic:
            self._calls.refused(uuid, REGISTER)
        elif error.value not in UNSUPPORTED and (classic or error.value != INVALID_ARGUMENT):
            self._calls.count(uuid, REGISTER, error_name(error))

    def _handle(self, data: Any) -> None:
        """Handle an event, or None after a wait without one or a failure; in the thread that waits."""
        try:
            if data is not None:
                self._record(data)
            elif self._wait is not None and self._wait.failure:
                self.log.watched = frozenset()
            self._wake_if_pending()
        except Exception:  # noqa: BLE001 - one unreadable event must not end the thread
            self._warn_once("a GPU event could not be read", error=True)

    def _record(self, data: Any) -> None:
        uuid = self._uuids.get(address_of(data.device)) or to_python(pynvml.nvmlDeviceGetUUID(data.device))
        kind = KINDS.get(data.eventType, "other")
        is_xid = kind == KINDS[XID]
        mig_uuid = self._mig_uuid(uuid, data.gpuInstanceId, data.computeInstanceId) if is_xid else ""
        xid = min(int(data.eventData), UNKNOWN_XID) if is_xid else None
        self.log.note(DeviceEvent(at=time.time(), uuid=uuid, kind=kind, mig_uuid=mig_uuid, xid=xid))
        if kind == KINDS[MIG_CONFIG]:
            # The ids may now be those of other devices; the next sweep sets them again.
            self._layouts.pop(uuid, None)
        self._wake_pending = self._wake_pending or kind in WAKING

    def _mig_uuid(self, uuid: str, gi: int, ci: int) -> str:
        """Return the MIG device of an event; "" for the whole GPU, or if unknown or not unique."""
        layout = self._layouts.get(uuid, {})
        matching = [
            mig for (mig_gi, mig_ci), mig in layout.items() if mig_gi == gi and ci in (mig_ci, NO_INSTANCE)
        ]
        return matching[0] if len(matching) == 1 else ""

    def _wake_if_pending(self) -> None:
        now = time.monotonic()
        if self._wake_pending and self.wake is not None and now - self._woken >= WAKE_SECONDS:
            self._wake_pending, self._woken = False, now
            self.wake()

    def _warn_once(self, text: str, *, error: bool = False) -> None:
        if text not in self._logged:
            self._logged.add(text)
            log.warning(text, exc_info=error)
