"""The routes of the hub: the page of the cluster, its twins, its stream, and how the hub itself is doing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from exporter.exposition_formats import media_quality
from exporter.fleet.orders import ORDERS
from exporter.web.app import build_app
from exporter.web.cluster import openapi
from exporter.web.cluster.openapi import FORMS
from exporter.web.cluster.pages import FleetPages
from exporter.web.drawing import Drawing, change
from exporter.web.html import seen
from exporter.web.serving import assets
from exporter.web.serving.errors import prefers_html
from exporter.web.serving.parameters import one_of
from exporter.web.serving.responses import reply
from exporter.web.serving.version import version
from exporter.web.streams.hub import Hub
from exporter.web.streams.sse import Message, event
from exporter.web.streams.ticker import Ticker
from exporter.web.views.fleet.tables import Orders

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
    streams = Hub(cluster.ticker)
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
            openapi.route(),
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
        """What is sent when there was nothing to tell for a while."""
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
        """Tell the server's clock and version."""
        return event("hello", {"now": round(now, 3), "version": version()})

    def whole(self, tag: str, state: tuple[float, Drawing]) -> Message:
        """Write all of the page."""
        return _told(tag, None, state)

    def change(self, old: tuple[float, Drawing], tag: str, new: tuple[float, Drawing]) -> Message:
        """Write what is new on the page."""
        return _told(tag, old[1], new)


_BEAT = event("beat", {})


def _told(tag: str, old: Drawing | None, new: tuple[float, Drawing]) -> Message:
    timestamp, drawing = new
    told = change(old, drawing)
    data = {
        "timestamp": timestamp,
        "title": seen(told.title),
        "pieces": dict(told.pieces),
        "lists": dict(told.lists),
    }
    return event("change", data, tag)


class _Routes:
    def __init__(self, cluster: Cluster, streams: Hub) -> None:
        self._pages = cluster.pages
        self._registry = cluster.registry
        self._streams = streams

    async def page(self, request: web.Request) -> web.Response:
        """Show the cluster: to browsers as a page, to programs such as curl as text."""
        orders = _orders(request)
        if prefers_html(request):
            body = await self._pages.html(orders)
            return await reply(request, body, "text/html; charset=utf-8", vary=_VARY)
        return await reply(request, await self._pages.text(), _TEXT, vary=_VARY)

    async def live(self, request: web.Request) -> web.StreamResponse:
        return await self._streams.answer(request, OpenFleet(self._pages, _orders(request)))

    async def document(self, request: web.Request) -> web.Response:
        """Hand out the cluster in the form that the URL names, else in the one that is accepted."""
        form = one_of(request.query, "format", FORMS)
        if form is None:
            form = _accepted_form(request.headers.get("Accept", ""))
        body = await (self._pages.document() if form == "json" else self._pages.text())
        return await reply(request, body, FORMS[form], vary=_VARY)

    async def metrics(self, _request: web.Request) -> web.Response:
        headers = {"Content-Type": CONTENT_TYPE_LATEST}
        return web.Response(body=generate_latest(self._registry), headers=headers)

    async def healthy(self, _request: web.Request) -> web.Response:
        """Say that the process answers; no restart of it mends a Prometheus that is away."""
        return web.Response(text="ok\n")

    async def ready(self, _request: web.Request) -> web.Response:
        """Say whether there is something to show."""
        done = self._pages.look.fleet is not None
        return web.Response(status=200 if done else 503, text="ok\n" if done else "nothing is known yet\n")


def _orders(request: web.Request) -> Orders:
    return Orders(*(one_of(request.query, name, keys) or "" for name, keys in ORDERS.items()))


def _accepted_form(accept: str) -> str:
    wanted = {form: media_quality(accept, kind.partition(";")[0]) for form, kind in FORMS.items()}
    return max(wanted, key=lambda form: wanted[form])
