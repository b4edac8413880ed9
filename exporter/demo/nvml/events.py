"""Functions of the fake driver about events: sets of them, registration, and the wait."""

import ctypes
import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import pynvml

from exporter.demo.nvml.board import Board, GpuDevice, MigDevice
from exporter.demo.nvml.call import (
    INVALID_ARGUMENT,
    Function,
    address_of,
    number,
    numbers,
    put_handle,
    refuse,
    require,
    target,
)
from exporter.demo.scenario.faults import XidEvent

TIMEOUT = 10
NO_INSTANCE = 0xFFFFFFFF
_FIRST, _STRIDE = 0x7E00_0000_0000, 0x40


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """An event of the GPU with that handle: ``type`` is one bit, ``data`` the number of an XID.

    ``gi`` and ``ci`` are the instances it came from, NO_INSTANCE for the whole GPU.
    """

    device: int
    type: int
    data: int = 0
    gi: int = NO_INSTANCE
    ci: int = NO_INSTANCE


@dataclass(slots=True)
class _EventSet:
    masks: dict[int, int] = field(default_factory=dict)
    queue: deque[Happening] = field(default_factory=deque)
    waits: int = 0
    taken: bool = False
    freed: bool = False


def _is_due(found: _EventSet) -> bool:
    """Whether somebody has yet to take an event, or is still busy with the last one."""
    return found.taken or bool(found.queue)


class EventSets:
    """All event sets of one driver; safe to use from any thread, and a wait holds up nobody else.

    ``misuse`` counts what would be a crash in a real driver: ``double free``, ``wait after free``, ``free
    under a wait``, ``shutdown under a wait``.
    """

    def __init__(self) -> None:
        self.misuse: Counter[str] = Counter()
        self._changed = threading.Condition()
        self._sets: dict[int, _EventSet] = {}
        self._gone: set[int] = set()
        self._released = False

    def __len__(self) -> int:
        return len(self._sets)

    def forget(self) -> None:
        """Deliver nothing more to the sets that there are: the kernel module that knew of them is gone."""
        with self._changed:
            for found in self._sets.values():
                found.masks.clear()
                found.queue.clear()

    def settle(self, seconds: float) -> bool:
        """Wait until all that has occurred was taken, and whoever took it has come back for more.

        False: it was not so within ``seconds``.
        """
        with self._changed:
            return self._changed.wait_for(lambda: not any(map(_is_due, self._sets.values())), seconds)

    def create(self) -> int:
        """Make an event set; return its handle."""
        with self._changed:
            handle = _FIRST + (len(self._sets) + len(self._gone)) * _STRIDE
            self._sets[handle] = _EventSet()
            return handle

    def register(self, handle: int, device: int, mask: int) -> None:
        """Let the set get these events of a device from now on, beside those that it gets already."""
        with self._changed:
            masks = self._found(handle, "registration after free").masks
            masks[device] = masks.get(device, 0) | mask

    def wait(self, handle: int, seconds: float) -> Happening:
        """Return the oldest event that nobody has taken, as soon as there is one; refuses with TIMEOUT."""
        with self._changed:
            found = self._found(handle, "wait after free")
            found.waits += 1
            found.taken = False
            self._changed.notify_all()
            try:
                self._changed.wait_for(lambda: found.queue or found.freed or self._released, seconds)
            finally:
                found.waits -= 1
            if not found.queue:
                refuse(TIMEOUT)
            found.taken = True
            return found.queue.popleft()

    def free(self, handle: int) -> None:
        """End an event set."""
        with self._changed:
            self._end(handle, self._found(handle, "double free"), "free under a wait")

    def close(self) -> None:
        """End all event sets, as the driver is shut down."""
        with self._changed:
            for handle, found in list(self._sets.items()):
                self._end(handle, found, "shutdown under a wait")

    def release(self) -> None:
        """Let no call wait from now on: whoever is about to close the driver waits for none of them."""
        with self._changed:
            self._released = True
            self._changed.notify_all()

    def happen(self, happening: Happening) -> None:
        """Show an event to every set that is registered for it; others never hear of it."""
        with self._changed:
            for found in self._sets.values():
                if found.masks.get(happening.device, 0) & happening.type:
                    found.queue.append(happening)
            self._changed.notify_all()

    def _found(self, handle: int, misuse: str) -> _EventSet:
        found = self._sets.get(handle)
        if found is None:
            self.misuse[misuse] += handle in self._gone
            refuse(INVALID_ARGUMENT)
        return found

    def _end(self, handle: int, found: _EventSet, misuse: str) -> None:
        if found.waits:
            self.misuse[misuse] += 1
        found.freed = True
        del self._sets[handle]
        self._gone.add(handle)
        self._changed.notify_all()


XID, MIG_CONFIG = 0x8, 0x100
# Every bit that the driver knows: errors, and changes of clocks, performance state and power source.
ALL = 0xFF9F


class Driver(Protocol):
    """What these functions need of the library."""

    events: EventSets


def _supported(device: GpuDevice) -> int:
    return ALL if device.spec.mig is not None else ALL & ~MIG_CONFIG


def _create(driver: Driver, reference: Any) -> None:
    put_handle(reference, driver.events.create())


def _register(device: GpuDevice, driver: Driver, mask: Any, event_set: Any) -> None:
    wanted = number(mask)
    require(not wanted & ~ALL, INVALID_ARGUMENT)
    require(not wanted & ~_supported(device))
    driver.events.register(address_of(event_set), device.address, wanted)


def _wait(driver: Driver, event_set: Any, reference: Any, milliseconds: Any) -> None:
    happening = driver.events.wait(address_of(event_set), number(milliseconds) / 1000)
    answer = target(reference)
    answer.device = ctypes.cast(happening.device, pynvml.c_nvmlDevice_t)
    answer.eventType, answer.eventData = happening.type, happening.data
    answer.gpuInstanceId, answer.computeInstanceId = happening.gi, happening.ci


FUNCTIONS: Mapping[str, Function] = {
    "nvmlEventSetCreate": Function("node", _create),
    "nvmlDeviceGetSupportedEventTypes": numbers("gpu", _supported),
    "nvmlDeviceRegisterEvents": Function("registration", _register),
    "nvmlEventSetWait_v2": Function("wait", _wait),
    "nvmlEventSetFree": Function("node", lambda driver, event_set: driver.events.free(address_of(event_set))),
}


def happening(board: Board, event: XidEvent) -> Happening | None:
    """Return the event of an XID, by the handle of its GPU; None if the device is not there."""
    device = next((each for each in board.by_address.values() if each.spec.uuid == event.device), None)
    if isinstance(device, MigDevice):
        cut = device.spec
        return Happening(device=device.parent_address, type=XID, data=event.xid, gi=cut.gi, ci=cut.ci)
    return None if device is None else Happening(device=device.address, type=XID, data=event.xid)


def recuts(before: Board, after: Board) -> Iterator[Happening]:
    """Return which GPUs of both boards are cut otherwise on the later one."""
    layouts = {device.address: _layout(device) for device in before.gpus}
    for device in after.gpus:
        if layouts.get(device.address, _layout(device)) != _layout(device):
            yield Happening(device=device.address, type=MIG_CONFIG)


def _layout(device: GpuDevice) -> frozenset[int]:
    return frozenset(mig.address for mig in device.migs.values())
