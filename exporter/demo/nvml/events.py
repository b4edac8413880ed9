"""Functions of the fake driver about events: event sets, registration, and waiting."""

import ctypes
import threading
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

import pynvml

from exporter.demo.nvml.board import Board, GpuDevice, MigDevice
from exporter.demo.nvml.call import NO_INSTANCE, Argument, Code, Function, numbers, refuse, require
from exporter.demo.scenario import XidEvent

_FIRST, _STRIDE = 0x7E00_0000_0000, 0x40
XID, MIG_CONFIG = 0x8, 0x100
# Every bit of nvmlEventType: errors, and changes of clocks, performance state and power source.
ALL = 0xFF9F


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """An event of a GPU."""

    device: int  # handle of the GPU
    type: int  # one bit
    data: int = 0  # the number of an XID
    gi: int = NO_INSTANCE  # NO_INSTANCE: the whole GPU
    ci: int = NO_INSTANCE


@dataclass(slots=True)
class _EventSet:
    masks: dict[int, int] = field(default_factory=dict)
    queue: deque[Happening] = field(default_factory=deque)
    waits: int = 0
    taken: bool = False  # the last event was returned, and the caller has not waited again
    freed: bool = False


class EventSets:
    """All event sets of one driver. Any thread may call it, and a wait blocks no other call.

    ``misuse`` counts what would crash a real driver: ``double free``, ``wait after free``, ``free under a
    wait``, ``shutdown under a wait``, ``registration after free``.
    """

    def __init__(self) -> None:
        self.misuse: Counter[str] = Counter()
        self._changed = threading.Condition()
        self._handles = count(_FIRST, _STRIDE)
        self._sets: dict[int, _EventSet] = {}
        self._freed: set[int] = set()
        self._released = False

    def __len__(self) -> int:
        return len(self._sets)

    def forget(self) -> None:
        """Deliver nothing more to existing sets: the kernel module that they registered with is unloaded."""
        with self._changed:
            for event_set in self._sets.values():
                event_set.masks.clear()
                event_set.queue.clear()

    def settle(self, seconds: float) -> bool:
        """Wait until every event was taken and its taker waits again; return False after ``seconds``."""
        sets = self._sets
        with self._changed:
            return self._changed.wait_for(
                lambda: not any(each.taken or each.queue for each in sets.values()), seconds
            )

    def create(self) -> int:
        """Create an event set; return its handle."""
        with self._changed:
            handle = next(self._handles)
            self._sets[handle] = _EventSet()
            return handle

    def register(self, handle: int, device: int, mask: int) -> None:
        """Add the event types in ``mask`` of a device to those that the set gets."""
        with self._changed:
            masks = self._set(handle, "registration after free").masks
            masks[device] = masks.get(device, 0) | mask

    def wait(self, handle: int, seconds: float) -> Happening:
        """Return the set's oldest event as soon as there is one; refuse with TIMEOUT after ``seconds``."""
        with self._changed:
            event_set = self._set(handle, "wait after free")
            event_set.waits += 1
            event_set.taken = False
            self._changed.notify_all()
            try:
                self._changed.wait_for(lambda: event_set.queue or event_set.freed or self._released, seconds)
            finally:
                event_set.waits -= 1
            require(event_set.queue, Code.TIMEOUT)
            event_set.taken = True
            return event_set.queue.popleft()

    def free(self, handle: int) -> None:
        with self._changed:
            self._free(handle, self._set(handle, "double free"), "free under a wait")

    def close(self) -> None:
        """Free all event sets, as the driver is shut down."""
        with self._changed:
            for handle, event_set in list(self._sets.items()):
                self._free(handle, event_set, "shutdown under a wait")

    def release(self) -> None:
        """Return from every wait, now and from now on, so that the driver can be closed."""
        with self._changed:
            self._released = True
            self._changed.notify_all()

    def happen(self, happening: Happening) -> None:
        """Deliver an event to every set that is registered for it."""
        with self._changed:
            for event_set in self._sets.values():
                if event_set.masks.get(happening.device, 0) & happening.type:
                    event_set.queue.append(happening)
            self._changed.notify_all()

    def _set(self, handle: int, misuse: str) -> _EventSet:
        event_set = self._sets.get(handle)
        if event_set is None:
            self.misuse[misuse] += handle in self._freed
            refuse(Code.INVALID_ARGUMENT)
        return event_set

    def _free(self, handle: int, event_set: _EventSet, misuse: str) -> None:
        if event_set.waits:
            self.misuse[misuse] += 1
        event_set.freed = True
        del self._sets[handle]
        self._freed.add(handle)
        self._changed.notify_all()


def _supported(device: GpuDevice) -> int:
    return ALL if device.spec.mig is not None else ALL & ~MIG_CONFIG


class _Driver(Protocol):
    events: EventSets


def _register(device: GpuDevice, driver: _Driver, mask: Argument, event_set: Argument) -> None:
    types = mask.number
    require(not types & ~ALL, Code.INVALID_ARGUMENT)
    require(not types & ~_supported(device))
    driver.events.register(event_set.address, device.address, types)


def _wait(driver: _Driver, event_set: Argument, reference: Argument, milliseconds: Argument) -> None:
    happening = driver.events.wait(event_set.address, milliseconds.number / 1000)
    answer = reference.target
    answer.device = ctypes.cast(happening.device, pynvml.c_nvmlDevice_t)
    answer.eventType, answer.eventData = happening.type, happening.data
    answer.gpuInstanceId, answer.computeInstanceId = happening.gi, happening.ci


FUNCTIONS: dict[str, Function] = {
    "nvmlEventSetCreate": Function(
        "node", lambda driver, event_set: event_set.put_handle(driver.events.create())
    ),
    "nvmlDeviceGetSupportedEventTypes": numbers("gpu", _supported),
    "nvmlDeviceRegisterEvents": Function("gpu", _register, with_driver=True),
    "nvmlEventSetWait_v2": Function("wait", _wait),
    "nvmlEventSetFree": Function("node", lambda driver, event_set: driver.events.free(event_set.address)),
}


def happening(board: Board, event: XidEvent) -> Happening | None:
    """Return the event of an XID, by the handle of its GPU; None if the device is not present."""
    devices = (device for device in board.by_address.values() if device.spec.uuid == event.device)
    device = next(devices, None)
    if isinstance(device, MigDevice):
        gi, ci = device.spec.gi, device.spec.ci
        return Happening(device=device.parent_address, type=XID, data=event.xid, gi=gi, ci=ci)
    return None if device is None else Happening(device=device.address, type=XID, data=event.xid)


def layout_changes(earlier: Board, later: Board) -> Iterator[Happening]:
    """Yield an event for each GPU on both boards whose MIG layout differs."""
    layouts = {device.address: _layout(device) for device in earlier.gpus}
    for device in later.gpus:
        if layouts.get(device.address, _layout(device)) != _layout(device):
            yield Happening(device=device.address, type=MIG_CONFIG)


def _layout(device: GpuDevice) -> frozenset[tuple[int, str]]:
    # A new device in the place of another has its address.
    return frozenset((mig.address, mig.spec.profile) for mig in device.migs.values())
