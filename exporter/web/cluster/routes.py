"""The routes of the hub: the page of the cluster, its other forms, its stream, and the hub's own state."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from exporter.concurrency import in_thread
from exporter.exposition.negotiation import media_quality
from exporter.fleet.cluster_model import ORDERS
from exporter.fleet.rendering import fleet_json, fleet_text
from exporter.fleet.targets import NodeLinks
from exporter.fleet.watch import Look
from exporter.web.app import build_app
from exporter.web.cluster import hub_openapi
from exporter.web.cluster.fleet_page import FleetScene, fleet_drawing
from exporter.web.cluster.fleet_tables import Orders
from exporter.web.cluster.hub_openapi import FORMS
from exporter.web.html import escape_controls, page
from exporter.web.http import assets
from exporter.web.http.assets import version
from exporter.web.http.errors import one_of, prefers_html
from exporter.web.http.responses import reply
from exporter.web.live.broadcaster import Broadcaster, Ticker
from exporter.web.live.sse import Message, event
from exporter.web.pages.page_pieces import Drawing, Opened, change
from exporter.web.pages.render_queue import RenderQueue, SharedTask

# The orders of all tables; clients may request more.
_KEPT = 64


class FleetPages:
    """The page of the newest look, which ``current`` returns."""

    def __init__(self, current: Callable[[], Look], links: NodeLinks, *, idle_after: float) -> None:
        self._current = current
        self._links = links
        self._idle_after = idle_after
        self._made: dict[tuple[Any, ...], SharedTask[Any]] = {}
        self._turns = RenderQueue()

    @property
    def look(self) -> Look:
        """The look that is shown."""
        return self._current()

    @property
    def tag(self) -> str:
        """A name for this look, unique also among other hubs."""
        look = self.look
        return f"{look.looks}-{look.read_at or 0:.3f}-{'' if look.fleet else 'nothing'}"

    async def drawing(self, orders: Orders, *, refusing: bool = False) -> Drawing:
        """Return the page; ``refusing`` answers 503 if too many orders of it wait to be drawn."""
        scene = self._scene(orders)
        key = (orders, self.tag, int(scene.now))
        if refusing and key not in self._made:
            self._turns.refuse_where_full()
        made: Drawing = await self._once(key, lambda: fleet_drawing(scene))
        return made

    async def html(self, orders: Orders) -> bytes:
        """Return the page as HTML."""
        look = self.look
        opened = Opened(
            live="live/fleet",
            tag=self.tag,
            timestamp=look.read_at or 0.0,
            now=time.time(),
            interval=look.interval,
            version=version(),
        )
        # The default order is drawn once per second at most, so it is never refused.
        drawing = await self.drawing(orders, refusing=orders != Orders())
        key = ("html", orders, opened.tag, int(opened.now))
        made: bytes = await self._once(key, lambda: page(drawing, "", opened).encode())
        return made

    async def text(self) -> bytes:
        """Return the cluster as text for a terminal; without data, why there is none."""
        look = self.look
        if look.fleet is None:
            return f"{look.error or 'the cluster is read for the first time'}\n".encode()
        before = f"! Prometheus does not answer: {look.error}\n\n" if look.error else ""
        fleet = look.fleet

        def write() -> bytes:
            return (before + fleet_text(fleet)).encode()

        made: bytes = await self._once(("text", self.tag), write)
        return made

    async def document(self) -> bytes:
        """Return the cluster as JSON: ``fleet`` is null without data."""
        look = self.look
        made: bytes = await self._once(("json", self.tag), lambda: json.dumps(look_json(look)).encode())
        return made

    def _scene(self, orders: Orders) -> FleetScene:
        return FleetScene(self.look, time.time(), self._idle_after, self._links, orders)

    async def _once(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        work = self._made.get(key)
        if work is None:
            while len(self._made) >= _KEPT:
                del self._made[next(iter(self._made))]
            work = self._made[key] = SharedTask(
                lambda: in_thread(make), lambda failed: self._drop(key, failed), self._turns
            )
        return await work.wait()

    def _drop(self, key: tuple[Any, ...], work: SharedTask[Any]) -> None:
        """Drop a failed task, so that the next request tries again."""
        if self._made.get(key) is work:
            del self._made[key]


def look_json(look: Look) -> dict[str, Any]:
    """Return a look as JSON data."""
    return {
        "read_at": look.read_at,
        "error": look.error or None,
        "failing_since": look.failing_since,
        "fleet": None if look.fleet is None else fleet_json(look.fleet),
    }


_TEXT = "text/plain; charset=utf-8"
_VARY = "Accept, Accept-Encoding"


class Cluster(NamedTuple):
    """What the routes are made of; ``ticker`` ticks with each look, ``registry`` has the hub's own series."""

    pages: FleetPages
    ticker: Ticker
    registry: CollectorRegistry


def make_hub_app(
    cluster: Cluster, *, prefix: str = "", frame_ancestors: Sequence[str] = ()
) -> web.Application:
    """Build the application of the hub, served below ``prefix`` too and framed as that of a node is."""
    streams = Broadcaster(cluster.ticker)
    routes = _Routes(cluster, streams)
    app = build_app(
        [
            web.get("/", routes.page),
            web.get("/fleet", routes.page),
            web.get("/live/fleet", routes.live),
            web.get("/api/v1/fleet", routes.document),
            web.get("/metrics", routes.metrics),
            web.get("/-/healthy", routes.healthy),
            web.get("/-/ready", routes.ready),
            hub_openapi.route(),
            *assets.routes(),
        ],
        prefix=prefix,
        frame_ancestors=frame_ancestors,
    )
    app.on_shutdown.append(streams.close)
    return app


@dataclass(frozen=True, slots=True)
class OpenFleet:
    """The page of the cluster as the subject of a stream."""

    pages: FleetPages
    orders: Orders

    @property
    def beat(self) -> Message:
        """The message sent if nothing has changed for a while."""
        return _BEAT

    @property
    def tag(self) -> str:
        """The name of the look that is shown now."""
        return self.pages.tag

    async def look(self) -> tuple[str, tuple[float, Drawing]] | None:
        """Draw the page."""
        tag, read_at = self.pages.tag, self.pages.look.read_at or 0.0
        return tag, (read_at, await self.pages.drawing(self.orders))

    def greeting(self, now: float) -> Message:
        """Return the event with the server's clock and version."""
        return event("hello", {"now": round(now, 3), "version": version()})

    def whole(self, tag: str, state: tuple[float, Drawing]) -> Message:
        """Return the event with the whole page."""
        return _told(tag, None, state)

    def change(self, old: tuple[float, Drawing], tag: str, new: tuple[float, Drawing]) -> Message:
        """Return the event with the changes of the page."""
        return _told(tag, old[1], new)


_BEAT = event("beat", {})


def _told(tag: str, old: Drawing | None, new: tuple[float, Drawing]) -> Message:
    timestamp, drawing = new
    told = change(old, drawing)
    data = {
        "timestamp": timestamp,
        "title": escape_controls(told.title),
        "pieces": dict(told.pieces),
        "lists": dict(told.lists),
    }
    return event("change", data, tag)


class _Routes:
    def __init__(self, cluster: Cluster, streams: Broadcaster) -> None:
        self._pages = cluster.pages
        self._registry = cluster.registry
        self._streams = streams

    async def page(self, request: web.Request) -> web.Response:
        """Return the cluster: to browsers as a page, to programs such as curl as text."""
        orders = _orders(request)
        if prefers_html(request):
            body = await self._pages.html(orders)
            return await reply(request, body, "text/html; charset=utf-8", vary=_VARY)
        return await reply(request, await self._pages.text(), _TEXT, vary=_VARY)

    async def live(self, request: web.Request) -> web.StreamResponse:
        return await self._streams.answer(request, OpenFleet(self._pages, _orders(request)))

    async def document(self, request: web.Request) -> web.Response:
        """Return the cluster in the form of the URL, else in the accepted one."""
        form = one_of(request.query, "format", FORMS)
        if form is None:
            form = _accepted_form(request.headers.get("Accept", ""))
        body = await (self._pages.document() if form == "json" else self._pages.text())
        return await reply(request, body, FORMS[form], vary=_VARY)

    async def metrics(self, _request: web.Request) -> web.Response:
        headers = {"Content-Type": CONTENT_TYPE_LATEST}
        return web.Response(body=generate_latest(self._registry), headers=headers)

    async def healthy(self, _request: web.Request) -> web.Response:
        """Return 200: the process answers, and no restart of it fixes an unreachable Prometheus."""
        return web.Response(text="ok\n")

    async def ready(self, _request: web.Request) -> web.Response:
        """Return 200 if there is data to show, else 503."""
        done = self._pages.look.fleet is not None
        return web.Response(status=200 if done else 503, text="ok\n" if done else "no data yet\n")


def _orders(request: web.Request) -> Orders:
    return Orders(*(one_of(request.query, name, keys) or "" for name, keys in ORDERS.items()))


def _accepted_form(accept: str) -> str:
    wanted = {form: media_quality(accept, kind.partition(";")[0]) for form, kind in FORMS.items()}
    return max(wanted, key=lambda form: wanted[form])
