"""The routes of the pods that wait: their page, its stream, and the API."""

import json
import time
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TypeVar

from aiohttp import web

from exporter.concurrency import in_thread
from exporter.fleet.model import Node
from exporter.fleet.pages.links import NodeUrl
from exporter.fleet.pages.openapi import FLEET_TYPES
from exporter.fleet.pages.waiting_page import WaitingScene, waiting_drawing
from exporter.fleet.waiting import narrowed
from exporter.fleet.waiting_data import waiting_csv, waiting_json
from exporter.fleet.waiting_text import waiting_text
from exporter.fleet.waiting_watch import WaitingRead
from exporter.web.kit.html import Drawing, Opened, page
from exporter.web.kit.http.responses import CONTENT_TYPES, reply
from exporter.web.kit.live.broadcaster import Broadcaster
from exporter.web.kit.parameters import prefers_html, requested_format
from exporter.web.kit.render_queue import RenderQueue, TaskCache

Made = TypeVar("Made")
Names = tuple[str, ...]
_MOST_KEPT = 16
_VARY = "Accept, Accept-Encoding"


class WaitingPages:
    """What the hub shows of the pods that wait, each form made once.

    ``only`` are the namespaces that the hub shows, all if it is empty.
    """

    def __init__(
        self,
        current: Callable[[], WaitingRead],
        nodes: Callable[[], tuple[Node, ...]],
        node_url: NodeUrl,
        only: Names = (),
    ) -> None:
        self.current = current
        self._nodes, self._node_url, self._only = nodes, node_url, only
        self._cache = TaskCache(_MOST_KEPT)
        self._turns = RenderQueue()

    @property
    def tag(self) -> str:
        """A name for these answers, unique also among other hubs."""
        read = self.current()
        return f"w{read.reads}-{self.timestamp:.3f}"

    @property
    def timestamp(self) -> float:
        """Unix time of the last answers, 0 before the first."""
        waiting = self.current().waiting
        return waiting.at if waiting else 0.0

    async def drawing(self, names: Names) -> Drawing:
        """Return the page of the pods in these namespaces, or in all."""
        now = time.time()
        scene = WaitingScene(
            self.current(),
            now,
            self._node_url,
            self._nodes(),
            names or self._only,
            bool(names) and not self._only,
        )
        return await self._once((names, self.tag, int(now)), partial(waiting_drawing, scene))

    async def html(self, names: Names) -> bytes:
        """Return the page as HTML."""
        now = time.time()
        opened = Opened("live/waiting", self.tag, self.timestamp, now, self.current().interval)
        drawing = await self.drawing(names)
        return await self._once(
            ("html", names, opened.tag, int(now)), lambda: page(drawing, "", opened).encode()
        )

    async def document(self, form: str, names: Names = ()) -> bytes:
        """Return the pods as ``json``, ``text`` or ``csv``.

        Raises HTTPServiceUnavailable while there are no answers.
        """
        read, chosen = self.current(), names or self._only
        if read.waiting is None:
            raise web.HTTPServiceUnavailable(text=f"{read.error}\n")
        waiting, error = read.waiting, read.error

        def write() -> bytes:
            shown = narrowed(waiting, chosen)
            if form == "csv":
                return waiting_csv(shown).encode()
            if form == "text":
                return waiting_text(shown).encode()
            return json.dumps({**waiting_json(shown), "error": error or None}).encode()

        return await self._once((form, chosen, self.tag), write)

    async def _once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        return await self._cache.start(key, lambda: in_thread(make), self._turns).wait()


class WaitingRoutes:
    """The routes; ``namespaces`` returns those that a request asks for."""

    def __init__(
        self, pages: WaitingPages, streams: Broadcaster, namespaces: Callable[[web.Request], Names]
    ) -> None:
        self._pages, self._streams, self._namespaces = pages, streams, namespaces

    def table(self) -> Sequence[web.RouteDef]:
        """Return the routes."""
        return (
            web.get("/waiting", self.page),
            web.get("/live/waiting", self.live),
            web.get("/api/v1/waiting", self.document),
        )

    async def page(self, request: web.Request) -> web.Response:
        """Return the pods that wait: to browsers as a page, to programs such as curl as text."""
        names = self._namespaces(request)
        if prefers_html(request):
            body = await self._pages.html(names)
            return await reply(request, body, "text/html; charset=utf-8", vary=_VARY)
        return await reply(
            request, await self._pages.document("text", names), CONTENT_TYPES["text"], vary=_VARY
        )

    async def live(self, request: web.Request) -> web.StreamResponse:
        """Follow the page."""
        return await self._streams.answer(request, self._pages, self._namespaces(request))

    async def document(self, request: web.Request) -> web.Response:
        """Return the pods that wait in the requested format."""
        wanted = requested_format(request, FLEET_TYPES)
        body = await self._pages.document(wanted, self._namespaces(request))
        saved = {"Content-Disposition": 'attachment; filename="gpuslice-waiting.csv"'}
        headers = saved if wanted == "csv" else {}
        return await reply(request, body, FLEET_TYPES[wanted], vary=_VARY, headers=headers)
