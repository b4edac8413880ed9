"""Streams for pages that are open: what has changed on them, with each snapshot.

``GET live/…`` with the path and the query of a page answers with events:

- ``hello`` at first: ``{"now": Unix time of the server, "version": of what made the page}``. A page of
  another version should be loaded anew.
- ``change`` with each snapshot, whose name is its id: ``{"now": Unix time of the server, "timestamp": Unix
  time of the poll, "title": …, "pieces": {id: HTML of the element with that id}, "lists": {id: [ids of its
  children, in order]}}``. Only what is new is told. A client that knows another snapshot than the one before
  gets everything: it says which it knows by ``?since=`` or ``Last-Event-ID``.
- ``beat`` when there was nothing to tell for a while, and ``gone`` before the end when what the page is of
  is not there any more.
"""

import time
from dataclasses import dataclass
from typing import NamedTuple

from aiohttp import web

from exporter.web.html import escape_controls
from exporter.web.http.assets import version
from exporter.web.live.broadcaster import Broadcaster
from exporter.web.live.sse import Message, event
from exporter.web.pages.page_pieces import Drawing, change
from exporter.web.pages.place import Place, asked_query
from exporter.web.render_cache import RenderCache


class Drawn(NamedTuple):
    """A page as it is drawn from the snapshot of that Unix time."""

    timestamp: float
    drawing: Drawing


@dataclass(frozen=True, slots=True)
class OpenPage:
    """A page as the subject of a stream."""

    pages: RenderCache
    place: Place

    @property
    def beat(self) -> Message:
        """An event, since a script is not shown comments: one that hears nothing knows that it is cut off."""
        return _BEAT

    @property
    def tag(self) -> str:
        """The name of the snapshot that is shown now."""
        return self.pages.tag

    async def look(self) -> tuple[str, Drawn] | None:
        """Draw the page."""
        tag, timestamp = self.pages.tag, self.pages.snapshot.timestamp
        drawing = await self.pages.drawing(self.place)
        return None if drawing is None else (tag, Drawn(timestamp, drawing))

    def greeting(self, now: float) -> Message:
        """Tell the server's clock and version."""
        return event("hello", {"now": round(now, 3), "version": version()})

    def whole(self, tag: str, state: Drawn) -> Message:
        """Write all of a page."""
        return _told(tag, None, state)

    def change(self, old: Drawn, tag: str, new: Drawn) -> Message:
        """Write what is new on a page."""
        return _told(tag, old.drawing, new)


_BEAT = event("beat", {})


def _told(tag: str, old: Drawing | None, new: Drawn) -> Message:
    told = change(old, new.drawing)
    data = {
        "now": round(time.time(), 3),
        "timestamp": new.timestamp,
        "title": escape_controls(told.title),
        "pieces": dict(told.pieces),
        "lists": dict(told.lists),
    }
    return event("change", data, tag)


def routes(pages: RenderCache, hub: Broadcaster) -> list[web.RouteDef]:
    """List the routes of streams for pages."""
    streams = _Streams(pages, hub)
    return [
        web.get("/live/", streams.node),
        web.get("/live/gpu/{uuid}", streams.gpu),
        web.get("/live/holder/{namespace}/{pod}/{container:[^/]*}", streams.holder),
        web.get("/live/doctor", streams.doctor),
    ]


class _Streams:
    def __init__(self, pages: RenderCache, hub: Broadcaster) -> None:
        self._pages = pages
        self._hub = hub

    async def node(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, Place("node", (), asked_query(request.query)))

    async def gpu(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(
            request, Place("gpu", (request.match_info["uuid"],), asked_query(request.query))
        )

    async def holder(self, request: web.Request) -> web.StreamResponse:
        names = tuple(request.match_info[name] for name in ("namespace", "pod", "container"))
        return await self._answer(request, Place("holder", names, asked_query(request.query)))

    async def doctor(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, Place("doctor", (), asked_query(request.query)))

    async def _answer(self, request: web.Request, place: Place) -> web.StreamResponse:
        return await self._hub.answer(request, OpenPage(self._pages, place))
