"""``GET /api/v1/stream``: the document of ``/api/v1/snapshot`` for programs, kept up to date.

The first event is ``snapshot`` with the whole document as its data. With each poll follows a ``delta``, an
object with the changes:

- ``sequence`` and ``timestamp``, always;
- ``node``: its changed fields with their new values;
- ``gpus``, ``migs``, ``vgpus``, ``containers``, ``pods``, ``collectors``: ``{"changed": [rows], "gone":
  [rows]}``. A row has its identifying labels, and in ``changed`` also its changed fields, or all fields if it
  is new. The labels are ``uuid``; ``uuid``, ``mig_uuid``; ``uuid``, ``vgpu_uuid``; ``namespace``, ``pod``,
  ``container``, ``uuid``, ``mig_uuid``; ``namespace``, ``pod``, ``pod_uid``; ``collector``. Rows keep their
  order and new ones are at the end, unless ``order`` lists all rows by their labels;
- any of these that is a list, and all other fields: the new value, which replaces the old one.

Fields that are missing have not changed. The id of an event is the name of its snapshot; a client that
reconnects with ``Last-Event-ID``, and has missed one poll at most, gets a ``delta`` instead of the
``snapshot``. A client that is too slow for deltas gets another ``snapshot``. Comments keep the connection
alive in between.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from aiohttp import web

from exporter.metrics import IDENTITY_LABELS, Level
from exporter.web.kit.live.broadcaster import Broadcaster, Message, event, text
from exporter.web.node.render_cache import RenderCache

Document: TypeAlias = Mapping[str, Any]
Row: TypeAlias = Mapping[str, Any]

LEVELS: Mapping[str, Level] = {
    "gpus": "gpu",
    "migs": "mig",
    "vgpus": "vgpu",
    "containers": "container",
    "pods": "pod",
    "collectors": "collector",
}
"""The lists of objects identified by labels, and the level that has these labels."""
_ALWAYS = ("sequence", "timestamp")


def delta(old: Document, new: Document) -> dict[str, Any]:
    """Return the changes, in the format that ``exporter.web.kit.live.snapshot_stream`` describes."""
    return {
        name: _change(name, old[name], value)
        for name, value in new.items()
        if name in _ALWAYS or old[name] != value
    }


def _change(name: str, old: Any, new: Any) -> Any:
    if isinstance(new, Mapping):
        return _changed(old, new)
    rows = _rows(IDENTITY_LABELS[LEVELS[name]], old, new) if name in LEVELS else None
    return new if rows is None else rows


def _rows(labels: Sequence[str], old: Sequence[Row], new: Sequence[Row]) -> dict[str, Any] | None:
    """Return the changes of rows by their labels, None if these are not unique."""
    old_rows, new_rows = _by_labels(labels, old), _by_labels(labels, new)
    if len(old_rows) != len(old) or len(new_rows) != len(new):
        return None
    added = [key for key in new_rows if key not in old_rows]
    changes: dict[str, Any] = {
        "changed": [
            _identity(labels, row) | _changed(old_rows.get(key, {}), row)
            for key, row in new_rows.items()
            if old_rows.get(key) != row
        ],
        "gone": [_identity(labels, row) for key, row in old_rows.items() if key not in new_rows],
    }
    if list(new_rows) != [key for key in old_rows if key in new_rows] + added:
        changes["order"] = [_identity(labels, row) for row in new]
    return changes


def _by_labels(labels: Sequence[str], rows: Sequence[Row]) -> dict[tuple[Any, ...], Row]:
    return {tuple(row[label] for label in labels): row for row in rows}


def _identity(labels: Sequence[str], row: Row) -> dict[str, Any]:
    return {label: row[label] for label in labels}


def _changed(old: Row, new: Row) -> dict[str, Any]:
    return {name: value for name, value in new.items() if name not in old or old[name] != value}


_BEAT = text(": still here\n\n")
# Milliseconds that an EventSource waits before it reconnects.
_GREETING = text("retry: 3000\n\n")


@dataclass(frozen=True, slots=True)
class Documents:
    """The document of the snapshot as the subject of a stream."""

    pages: RenderCache

    @property
    def beat(self) -> Message:
        """The message sent if there was no other for a while: a comment."""
        return _BEAT

    @property
    def tag(self) -> str:
        """The name of the snapshot that is shown now."""
        return self.pages.tag

    async def look(self) -> tuple[str, Document]:
        """Return the document with the name of its snapshot."""
        tag = self.pages.tag
        return tag, await self.pages.document()

    def greeting(self, _now: float) -> Message:
        """Return the message with the reconnection time."""
        return _GREETING

    def whole(self, tag: str, state: Document) -> Message:
        """Return the event with the whole document."""
        return event("snapshot", state, tag)

    def change(self, old: Document, tag: str, new: Document) -> Message:
        """Return the event with the changes."""
        return event("delta", delta(old, new), tag)


def routes(pages: RenderCache, streams: Broadcaster) -> list[web.RouteDef]:
    """Return the route of the stream for programs."""
    documents = Documents(pages)

    async def stream(request: web.Request) -> web.StreamResponse:
        return await streams.answer(request, documents)

    return [web.get("/api/v1/stream", stream)]
