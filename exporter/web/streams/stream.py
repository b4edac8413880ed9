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

from dataclasses import dataclass

from aiohttp import web

from exporter.web.pages import Pages
from exporter.web.streams.deltas import Document, delta
from exporter.web.streams.hub import Hub
from exporter.web.streams.sse import Message, event, text

_BEAT = text(": still here\n\n")
# A client of the standard kind waits so long before it comes back, in milliseconds.
_GREETING = text("retry: 3000\n\n")


@dataclass(frozen=True, slots=True)
class Documents:
    """The document of the snapshot as the subject of a stream."""

    pages: Pages

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


def routes(pages: Pages, hub: Hub) -> list[web.RouteDef]:
    """List the route of the stream for programs."""
    documents = Documents(pages)

    async def stream(request: web.Request) -> web.StreamResponse:
        return await hub.answer(request, documents)

    return [web.get("/api/v1/stream", stream)]
