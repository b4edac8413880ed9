"""Counts and the newest events of GPUs."""

import threading
from collections import deque
from typing import NamedTuple

from exporter.model import DeviceEvent, EventCount

RECENT = 256


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
