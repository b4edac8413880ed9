"""What the devices have reported by themselves since the program's start."""

import threading
from collections import deque
from collections.abc import Iterable

from exporter.model import DeviceEvent, EventCount

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
        return watched, tuple(_count(key, *counts[key]) for key in sorted(counts, key=_order)), recent


def _count(key: Key, count: int, last: float) -> EventCount:
    uuid, mig_uuid, kind, xid = key
    return EventCount(uuid=uuid, mig_uuid=mig_uuid, kind=kind, xid=xid, count=count, last=last)


def _order(key: Key) -> tuple[str, str, str, int]:
    uuid, mig_uuid, kind, xid = key
    return uuid, mig_uuid, kind, xid or 0
