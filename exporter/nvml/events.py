"""What GPUs report by themselves: XID errors, ECC errors, changes of the MIG layout, recovery actions.

Everything but the wait happens in the thread of the sweeps. The library is safe to be called from several
threads, and a wait lets go of the interpreter.
"""

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from ctypes import c_void_p
from typing import Any

import pynvml

from exporter.model import DeviceEvent, EventCount
from exporter.nvml.driver.binding import to_python
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

RECENT = 256

Key = tuple[str, str, str, int | None]


class EventLog:
    """Counts events and keeps the newest; safe to use from any thread.

    It outlives the driver: counts never fall, whatever is opened anew or cut differently.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: frozenset[str] = frozenset()
        self._counts: dict[Key, tuple[int, float]] = {}
        self._recent: deque[DeviceEvent] = deque(maxlen=RECENT)

    def note(self, event: DeviceEvent) -> None:
        """Count one event."""
        key = (event.uuid, event.mig_uuid, event.kind, event.xid)
        with self._lock:
            count, _ = self._counts.get(key, (0, 0.0))
            self._counts[key] = count + 1, event.at
            self._recent.append(event)

    def watch(self, uuids: Iterable[str]) -> None:
        """Tell of which GPUs events are waited for from now on."""
        with self._lock:
            self._watched = frozenset(uuids)

    def snapshot(self) -> tuple[frozenset[str], tuple[EventCount, ...], tuple[DeviceEvent, ...]]:
        """Return the GPUs whose events are waited for, all counts, and the newest events, oldest first."""
        with self._lock:
            watched, counts, recent = self._watched, dict(self._counts), tuple(self._recent)
        found = (
            EventCount(uuid=uuid, mig_uuid=mig_uuid, kind=kind, xid=xid, count=count, last=last)
            for (uuid, mig_uuid, kind, xid), (count, last) in counts.items()
        )
        ordered = sorted(found, key=lambda each: (each.uuid, each.mig_uuid, each.kind, each.xid or 0))
        return watched, tuple(ordered), recent


log = logging.getLogger(__name__)
GROUP = "events"
# What the calls are about that are made for all GPUs at once.
EVENTS = "events"
XID, MIG_CONFIG = 0x8, 0x100
# By number: bindings have learnt the names of the newer ones late. Changes of clocks, of performance state
# and of the power source are left out: they occur all the time.
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
# A driver refuses a mask as a whole for one bit that it does not know, so newer bits are asked for apart.
CLASSIC = 0x1 | 0x2 | XID
NEWER = (sum(KINDS) & ~CLASSIC & ~MIG_CONFIG, MIG_CONFIG)
REGISTER = "nvmlDeviceRegisterEvents"
# After these the node may be another one, so that it is worth looking at once.
WAKING = frozenset({"xid", "mig_config", "gpu_unavailable"})
WAKE_SECONDS = 1.0
NO_INSTANCE = 0xFFFFFFFF
# What the driver calls an XID that it does not know; there is none beyond it.
UNKNOWN_XID = 999

Layout = Mapping[tuple[int, int], str]


class EventWatcher:
    """Waits for the events of all GPUs, in one thread, and notes them in ``log``.

    ``wake`` is called in that thread when the devices should be read soon, once a second at most. All methods
    are for the thread of the sweeps, and none of them raises.
    """

    def __init__(self, calls: Calls, wake: Callable[[], None] | None = None) -> None:
        self.log = EventLog()
        self.wake = wake
        self._calls = calls
        self._wait: EventWait | None = None
        self._impossible = False
        self._uuids: dict[int, str] = {}
        self._registered: dict[str, int] = {}
        self._layouts: dict[str, Layout] = {}
        self._wanted = False
        self._woken = 0.0
        self._complaints: set[str] = set()

    def start(self, devices: Mapping[str, Any]) -> None:
        """Wait for the events of these GPUs (uuid to handle); to be called after every enumeration.

        Costs nothing while all of them are waited for. A wait that has failed is begun anew.
        """
        group, self._calls.group = self._calls.group, GROUP
        if self._wait is None or self._wait.waits or self._give_up(self._wait):
            self._add_all(devices)
        self._calls.group = group

    def stop(self) -> bool:
        """Wait no longer; to be called before the driver is shut down.

        False: the thread hangs in the driver, which must then not be shut down under it.
        """
        self._impossible = False
        return self._end()

    def hand_over(self, calls: Calls) -> None:
        """Register by these calls from now on, in another thread: the one before hangs in the driver."""
        self._calls = calls

    def note_layout(self, uuid: str, layout: Layout) -> None:
        """Tell which MIG device has which ids of its GPU instance and compute instance."""
        self._layouts[uuid] = layout

    def _end(self) -> bool:
        self.log.watch(())
        if self._wait is None:
            return True
        if not self._wait.end():
            self._complain(
                "the driver has not returned from a wait for events; GPU events are no longer reported"
            )
            return False
        event_set, self._wait, self._uuids = self._wait.event_set, None, {}
        self._registered.clear()
        # A registration that hangs may still write into it. That of a driver that is gone cannot be freed.
        if not self._calls.hanging:
            self._calls.give_back("nvmlEventSetFree", pynvml.nvmlEventSetFree, event_set)
        return True

    def _give_up(self, wait: EventWait) -> bool:
        """Put away a wait that has failed or hangs; False while it still hangs."""
        if not self._end():
            return False
        self._impossible = wait.code in UNSUPPORTED
        if wait.failure and not self._impossible:
            self._calls.count("", "nvmlEventSetWait_v2", wait.failure)
        return True

    def _add_all(self, devices: Mapping[str, Any]) -> None:
        for uuid, handle in devices.items():
            address = _address(handle)
            if not self._impossible and self._registered.get(uuid) != address:
                with (
                    contextlib.suppress(DeviceLostError, DeviceSlowError, DriverGoneError),
                    self._calls.about(uuid),
                ):
                    self._add(uuid, handle, address)
        self.log.watch(self._registered.keys() & devices.keys())
        if self._wait is not None and self._registered:
            self._wait.begin()
            if self._wait.failure:
                # The thread may have told so before this one told otherwise.
                self.log.watch(())

    def _add(self, uuid: str, handle: Any, address: int) -> None:
        """Register a GPU for those of the events that it supports; one that fails is tried again."""
        supported = self._calls.ask(uuid, "nvmlDeviceGetSupportedEventTypes", handle) or 0
        if not supported & XID or not self._calls.supports(uuid, REGISTER):
            return
        wait = self._wait or self._new_wait()
        if wait is None:
            return
        self._wait = wait
        # An event may come before the registration has returned.
        self._uuids = self._uuids | {address: uuid}
        if self._register(wait, uuid, handle, supported & CLASSIC):
            for newer in NEWER:
                if supported & newer:
                    self._register(wait, uuid, handle, supported & newer)
            self._registered[uuid] = address

    def _new_wait(self) -> EventWait | None:
        # It is no GPU's: where this hangs, each of them would be left out for it.
        with self._calls.about(EVENTS, ""):
            event_set = self._calls.ask("", "nvmlEventSetCreate")
        return None if event_set is None else EventWait(event_set, self._turn)

    def _register(self, wait: EventWait, uuid: str, handle: Any, mask: int) -> bool:
        """Register a GPU for these events, and tell whether it is."""
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

    def _turn(self, data: Any) -> None:
        """Take an event, or None; in the thread that waits, which nothing here may end."""
        try:
            if data is not None:
                self._take(data)
            elif self._wait is not None and self._wait.failure:
                self.log.watch(())
            self._ring()
        except Exception:  # noqa: BLE001 - whatever one event does, the next one is waited for
            self._complain("a GPU event could not be read", error=True)

    def _take(self, data: Any) -> None:
        uuid = self._uuids.get(_address(data.device)) or to_python(pynvml.nvmlDeviceGetUUID(data.device))
        kind = KINDS.get(data.eventType, "other")
        of_xid = kind == KINDS[XID]
        mig_uuid = self._mig(uuid, data.gpuInstanceId, data.computeInstanceId) if of_xid else ""
        xid = min(int(data.eventData), UNKNOWN_XID) if of_xid else None
        self.log.note(DeviceEvent(at=time.time(), uuid=uuid, kind=kind, mig_uuid=mig_uuid, xid=xid))
        if kind == KINDS[MIG_CONFIG]:
            # The ids may be those of other devices now, until a sweep has seen which.
            self._layouts.pop(uuid, None)
        self._wanted = self._wanted or kind in WAKING

    def _mig(self, uuid: str, gi: int, ci: int) -> str:
        """Return the MIG device of an event; "" for the whole GPU, or if unknown."""
        layout = self._layouts.get(uuid, {})
        inside = [
            mig for (its_gi, its_ci), mig in layout.items() if its_gi == gi and ci in (its_ci, NO_INSTANCE)
        ]
        return inside[0] if len(inside) == 1 else ""

    def _ring(self) -> None:
        now = time.monotonic()
        if self._wanted and self.wake is not None and now - self._woken >= WAKE_SECONDS:
            self._wanted, self._woken = False, now
            self.wake()

    def _complain(self, text: str, *, error: bool = False) -> None:
        if text not in self._complaints:
            self._complaints.add(text)
            log.warning(text, exc_info=error)


def _address(handle: Any) -> int:
    # A cast would have the handle hold itself, for the garbage collector to find.
    return c_void_p.from_buffer(handle).value or 0
