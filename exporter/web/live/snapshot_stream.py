"""``GET /api/v1/stream``: the document of ``/api/v1/snapshot`` for programs, kept up to date.

The first event is ``snapshot``, and its data is the whole document. With each poll comes a ``delta``, an
object with what is new:

- ``sequence`` and ``timestamp``, always;
- ``node``: its fields that have changed, with their new values;
- ``gpus``, ``migs``, ``vgpus``, ``containers``, ``pods``, ``collectors``: ``{"changed": [rows], "gone":
  [rows]}``. A row has the labels that tell it from the others, and in ``changed`` also the fields that have
  changed, or all of them where it is new. These labels are ``uuid``; ``uuid``, ``mig_uuid``; ``uuid``,
  ``vgpu_uuid``; ``namespace``, ``pod``, ``container``, ``uuid``, ``mig_uuid``; ``namespace``, ``pod``,
  ``pod_uid``; ``collector``. Rows keep their order and new ones stand at the end, unless ``order`` lists
  all rows by their labels;
- any of these that is a list, and all else: the new value, in place of the old one.

What is not named is as it was. The id of an event is the name of its snapshot; a client that comes back with
``Last-Event-ID``, and has missed one poll at most, gets a ``delta`` at once in place of the ``snapshot``. A
client that is too slow for deltas gets a ``snapshot`` again. Comments keep the connection alive in between.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from aiohttp import web

from exporter.metrics import LEVEL_LABELS, Level
from exporter.web.live.broadcaster import Broadcaster
from exporter.web.live.sse import Message, event, text
from exporter.web.render_cache import RenderCache

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
"""The lists whose objects are told apart by labels, and the level that has these."""
_ALWAYS = ("sequence", "timestamp")


def delta(old: Document, new: Document) -> dict[str, Any]:
    """Tell what is new, in the shape that ``exporter.web.live.snapshot_stream`` describes."""
    return {
        name: _told(name, old[name], value)
        for name, value in new.items()
        if name in _ALWAYS or old[name] != value
    }


def _told(name: str, old: Any, new: Any) -> Any:
    if isinstance(new, Mapping):
        return _changed(old, new)
    rows = _rows(LEVEL_LABELS[LEVELS[name]], old, new) if name in LEVELS else None
    return new if rows is None else rows


def _rows(labels: Sequence[str], old: Sequence[Row], new: Sequence[Row]) -> dict[str, Any] | None:
    """Tell of rows by their labels, None where these do not tell them apart."""
    before, after = _by_labels(labels, old), _by_labels(labels, new)
    if len(before) != len(old) or len(after) != len(new):
        return None
    new_ones = [key for key in after if key not in before]
    told: dict[str, Any] = {
        "changed": [
            _identity(labels, row) | _changed(before.get(key, {}), row)
            for key, row in after.items()
            if before.get(key) != row
        ],
        "gone": [_identity(labels, row) for key, row in before.items() if key not in after],
    }
    if list(after) != [key for key in before if key in after] + new_ones:
        told["order"] = [_identity(labels, row) for row in new]
    return told


def _by_labels(labels: Sequence[str], rows: Sequence[Row]) -> dict[tuple[Any, ...], Row]:
    return {tuple(row[label] for label in labels): row for row in rows}


def _identity(labels: Sequence[str], row: Row) -> dict[str, Any]:
    return {label: row[label] for label in labels}


def _changed(old: Row, new: Row) -> dict[str, Any]:
    return {name: value for name, value in new.items() if name not in old or old[name] != value}


_BEAT = text(": still here\n\n")
# A client of the standard kind waits so long before it comes back, in milliseconds.
_GREETING = text("retry: 3000\n\n")


@dataclass(frozen=True, slots=True)
class Documents:
    """The document of the snapshot as the subject of a stream."""

    pages: RenderCache

    @property
    def beat(self) -> Message:
        """A comment."""
        return _BEAT

    @property
    def tag(self) -> str:
        """The name of the snapshot that is shown now."""
        return self.pages.tag

    async def look(self) -> tuple[str, Document]:
        """Give the document; it is always there."""
        tag = self.pages.tag
        return tag, await self.pages.document()

    def greeting(self, _now: float) -> Message:
        """Say how soon to come back."""
        return _GREETING

    def whole(self, tag: str, state: Document) -> Message:
        """Write the document."""
        return event("snapshot", state, tag)

    def change(self, old: Document, tag: str, new: Document) -> Message:
        """Write a delta."""
        return event("delta", delta(old, new), tag)


def routes(pages: RenderCache, hub: Broadcaster) -> list[web.RouteDef]:
    """List the route of the stream for programs."""
    documents = Documents(pages)

    async def stream(request: web.Request) -> web.StreamResponse:
        return await hub.answer(request, documents)

    return [web.get("/api/v1/stream", stream)]
