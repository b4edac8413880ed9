"""The event sets of the fake driver: who waits for what of which device, and what has occurred for them."""

import threading
from collections import Counter, deque
from dataclasses import dataclass, field

from exporter.demo.nvml_codes import INVALID_ARGUMENT, refuse

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
