"""Streams for open pages: their changes with each snapshot.

``GET live/…`` with the path and the query of a page returns events:

- ``hello`` first: ``{"now": Unix time of the server, "version": version of the program and its scripts}``. A
  page of another version should be reloaded.
- ``change`` with each snapshot; its id is the name of the snapshot: ``{"now": Unix time of the server,
  "timestamp": Unix time of the poll, "title": …, "pieces": {id: HTML of the element with that id}, "lists":
  {id: [ids of its children, in order]}}``, with the changed parts only. A client sends the name of its
  snapshot as ``?since=`` or ``Last-Event-ID``; unless that is the previous one, it gets all parts.
- ``beat`` if nothing has changed for a while.
- ``gone``, then the end of the stream, if the subject of the page no longer exists.
"""

import time
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

from aiohttp import web

from exporter.web.kit.html import Drawing, escape_controls
from exporter.web.kit.http.assets import version
from exporter.web.kit.live.broadcaster import Broadcaster, Message, event
from exporter.web.node.parameters import PATHS, Kind, requested_place
from exporter.web.node.render_cache import RenderCache


class Pages(Protocol):
    """The pages of the newest snapshot of a node, or of the newest answer about a cluster."""

    @property
    def tag(self) -> str:
        """The name of the snapshot that is shown now."""

    @property
    def timestamp(self) -> float:
        """Unix time of this snapshot."""

    async def drawing(self, place: Any) -> Drawing | None:
        """Return a page, None if its subject does not exist."""


class Drawn(NamedTuple):
    """A page as drawn from a snapshot."""

    timestamp: float  # Unix time of the snapshot
    drawing: Drawing


@dataclass(frozen=True, slots=True)
class OpenPage:
    """A page as the subject of a stream."""

    pages: Pages
    place: Hashable  # what ``pages`` draws the page by

    @property
    def beat(self) -> Message:
        """An event, not a comment: scripts do not see comments, and silence means a broken stream."""
        return _BEAT

    @property
    def tag(self) -> str:
        """The name of the snapshot that is shown now."""
        return self.pages.tag

    async def look(self) -> tuple[str, Drawn] | None:
        """Return the page with the name of its snapshot, None if its subject does not exist."""
        tag, timestamp = self.pages.tag, self.pages.timestamp
        drawing = await self.pages.drawing(self.place)
        return None if drawing is None else (tag, Drawn(timestamp, drawing))

    def greeting(self, now: float) -> Message:
        """Return the event with the server's clock and version."""
        return event("hello", {"now": round(now, 3), "version": version()})

    def whole(self, tag: str, state: Drawn) -> Message:
        """Return the event with the whole page."""
        return _change_event(tag, None, state)

    def change(self, old: Drawn, tag: str, new: Drawn) -> Message:
        """Return the event with the changes of the page."""
        return _change_event(tag, old.drawing, new)


_BEAT = event("beat", {})


def _change_event(tag: str, old: Drawing | None, new: Drawn) -> Message:
    """Return the event with the pieces that are not in the old drawing, all of them if there is none.

    Children that are in no list are removed from the page.
    """
    drawing = new.drawing
    data = {
        "now": round(time.time(), 3),
        "timestamp": new.timestamp,
        "title": escape_controls(drawing.title),
        "pieces": _news(old.pieces if old else {}, drawing.pieces),
        "lists": _news(old.lists if old else {}, drawing.lists),
    }
    return event("change", data, tag)


def _news(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in new.items() if old.get(name) != value}


def routes(pages: RenderCache, streams: Broadcaster) -> list[web.RouteDef]:
    """Return the routes of streams for pages."""

    async def answer(kind: Kind, request: web.Request) -> web.StreamResponse:
        return await streams.answer(request, OpenPage(pages, requested_place(kind, request)))

    return [web.get(f"/live/{path}", partial(answer, kind)) for kind, path in PATHS.items()]
