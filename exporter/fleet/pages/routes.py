"""The routes of the hub: the page of the cluster, its other formats, its stream, and the hub's own state."""

import json
import time
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TypeVar

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from exporter.concurrency import in_thread
from exporter.exposition import SelfMetrics
from exporter.fleet.cluster_advice import ClusterAdvice, cluster_advice_json
from exporter.fleet.csv_tables import nodes_csv
from exporter.fleet.json_data import fleet_json
from exporter.fleet.model import ORDERS
from exporter.fleet.narrowed import advice_of, read_of, unknown_names, unknown_words
from exporter.fleet.pages import openapi as hub_openapi
from exporter.fleet.pages.hub_metrics import HubMetrics, WaitingMetrics
from exporter.fleet.pages.links import NodeUrl
from exporter.fleet.pages.page import FleetScene, fleet_drawing
from exporter.fleet.pages.tables import Orders
from exporter.fleet.pages.usage import UsagePages
from exporter.fleet.pages.waiting_routes import WaitingPages, WaitingRoutes
from exporter.fleet.targets import some_names
from exporter.fleet.text import fleet_text
from exporter.fleet.watch import AdviceRead, FleetRead
from exporter.formats.advice import advice_csv
from exporter.web.kit.application import build_app
from exporter.web.kit.html import Drawing, Opened, page
from exporter.web.kit.http import assets
from exporter.web.kit.http.responses import ADVICE_TYPES, CONTENT_TYPES, reply
from exporter.web.kit.live.broadcaster import Broadcaster, Ticker
from exporter.web.kit.openapi import describe
from exporter.web.kit.parameters import one_of, prefers_html, requested_format, short_texts
from exporter.web.kit.render_queue import RenderQueue, TaskCache
from exporter.wording import printable

Made = TypeVar("Made")
# More than all combinations of orders; the tag and the second change the keys.
_MOST_KEPT = 64
_VARY = "Accept, Accept-Encoding"


class FleetPages:
    """What the hub shows of the newest read, each form made once.

    ``price`` is that of a GPU-hour; ``only`` are the namespaces whose holders are shown, all if it is empty.
    """

    def __init__(
        self,
        current: Callable[[], FleetRead],
        node_url: NodeUrl,
        price: float | None = None,
        only: tuple[str, ...] = (),
    ) -> None:
        self.current = current
        self._node_url = node_url
        self._price = price
        self._only = only
        self._cache = TaskCache(_MOST_KEPT)
        self._turns = RenderQueue()

    @property
    def tag(self) -> str:
        """A name for this read, unique also among other hubs."""
        read = self.current()
        shown = "".join("1" if found else "0" for found in (read.fleet, read.advice.found))
        return f"{read.reads}-{read.read_at or 0:.3f}-{read.advice.reads}-{shown}"

    @property
    def timestamp(self) -> float:
        """Unix time of the last good answer, 0 before the first."""
        return self.current().read_at or 0.0

    async def drawing(self, orders: Orders, *, refusing: bool = False) -> Drawing:
        """Return the page; ``refusing`` answers 503 if too many orders of it wait to be drawn."""
        scene = FleetScene(self.current(), time.time(), self._node_url, orders, self._only)
        key = (orders, self.tag, int(scene.now))
        if refusing and key not in self._cache.tasks:
            self._turns.refuse_where_full()
        return await self._once(key, partial(fleet_drawing, scene))

    async def html(self, orders: Orders) -> bytes:
        """Return the page as HTML."""
        opened = Opened(
            live="live/fleet",
            tag=self.tag,
            timestamp=self.timestamp,
            now=time.time(),
            interval=self.current().interval,
        )
        # The default order is drawn once per second at most, so it is never refused.
        drawing = await self.drawing(orders, refusing=orders != Orders())
        key = ("html", orders, opened.tag, int(opened.now))
        return await self._once(key, lambda: page(drawing, "", opened).encode())

    def require_shown(self, names: Sequence[str]) -> None:
        """Raise HTTPNotFound for a namespace that this hub does not show."""
        for name in names:
            if self._only and name not in self._only:
                shown = some_names(self._only)
                raise web.HTTPNotFound(text=f"This hub does not show {printable(name)!r}, but {shown}.")

    def require_known(self, names: Sequence[str]) -> None:
        """Raise HTTPNotFound for a namespace of which nothing is known."""
        read = self.current()
        for name in unknown_names(read, names):
            if read.fleet is not None:
                words = unknown_words(read.fleet, name)
                raise web.HTTPNotFound(text=f"{words[0].upper()}{words[1:]}.")

    async def document(self, form: str, names: tuple[str, ...] = ()) -> bytes:
        """Return the cluster as ``json`` or ``text``, with the holders in these namespaces, or in all.

        As ``csv`` it is the nodes. Raises HTTPServiceUnavailable if there are none yet.
        """
        write, read = {"json": _json, "text": _text, "csv": _csv}[form], self.current()
        chosen = names or self._only
        if form == "csv" and read.fleet is None:
            raise web.HTTPServiceUnavailable(text=_no_data(read))
        return await self._once((form, chosen, self.tag), lambda: write(read_of(read, chosen)))

    async def advice(
        self, read: AdviceRead, found: ClusterAdvice, form: str, names: tuple[str, ...] = ()
    ) -> bytes:
        """Return the advice that a read shows as ``json`` or ``csv``, on these namespaces or on all."""
        chosen = names or self._only

        def write() -> bytes:
            narrowed = advice_of(found, chosen)
            if form == "csv":
                return advice_csv(narrowed.advices).encode()
            return json.dumps(cluster_advice_json(narrowed, self._price) | _failure(read)).encode()

        return await self._once(("advice", form, chosen, self.tag), write)

    async def _once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        return await self._cache.start(key, lambda: in_thread(make), self._turns).wait()


def _json(read: FleetRead) -> bytes:
    """Return the cluster as JSON: ``fleet`` is null without data."""
    fleet = None if read.fleet is None else fleet_json(read.fleet)
    return json.dumps({"read_at": read.read_at, **_failure(read), "fleet": fleet}).encode()


def _text(read: FleetRead) -> bytes:
    """Return the cluster as text for a terminal; without data, why there is none."""
    if read.fleet is None:
        return _no_data(read).encode()
    warning = f"! Prometheus does not answer: {read.error}\n\n" if read.error else ""
    return f"{warning}{fleet_text(read.fleet)}".encode()


def _csv(read: FleetRead) -> bytes:
    """Return the nodes as CSV."""
    return nodes_csv(read.fleet.nodes if read.fleet else ()).encode()


def _no_data(read: FleetRead) -> str:
    return f"{read.error or 'the cluster is read for the first time'}\n"


def _saved_as(what: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="gpuslice-{what}.csv"'}


def _failure(read: FleetRead | AdviceRead) -> dict[str, str | float | None]:
    return {"error": read.error or None, "failing_since": read.failing_since}


def make_hub_app(  # noqa: PLR0913 - by keyword
    pages: FleetPages,
    ticker: Ticker,
    *,
    waiting: WaitingPages,
    usage: UsagePages,
    prefix: str = "",
    frame_ancestors: Sequence[str] = (),
) -> web.Application:
    """Return the application of the hub, also served below ``prefix``.

    ``ticker`` ticks with each read of the cluster.
    """
    streams = Broadcaster(ticker)
    routes = _Routes(pages, streams, waiting)
    app = build_app(
        [
            web.get("/", routes.page),
            web.get("/fleet", routes.page),
            web.get("/live/fleet", routes.live),
            web.get("/api/v1/fleet", routes.document),
            web.get("/api/v1/advice", routes.advice),
            *WaitingRoutes(waiting, streams, routes.namespaces).table(),
            *usage.routes(),
            web.get("/metrics", routes.metrics),
            web.get("/-/healthy", routes.healthy),
            web.get("/-/ready", routes.ready),
            describe.route(hub_openapi.document),
            *assets.routes(),
        ],
        prefix=prefix,
        frame_ancestors=frame_ancestors,
    )
    app.on_shutdown.append(streams.close)
    return app


class _Routes:
    def __init__(self, pages: FleetPages, streams: Broadcaster, waiting: WaitingPages) -> None:
        self._pages, self._streams = pages, streams
        self._registry = SelfMetrics().registry
        self._registry.register(HubMetrics(pages.current))
        self._registry.register(WaitingMetrics(waiting.current))

    async def page(self, request: web.Request) -> web.Response:
        """Return the cluster: to browsers as a page, to programs such as curl as text."""
        orders = self._orders(request)
        if prefers_html(request):
            body = await self._pages.html(orders)
            return await reply(request, body, "text/html; charset=utf-8", vary=_VARY)
        self._pages.require_known(orders.namespace)
        body = await self._pages.document("text", orders.namespace)
        return await reply(request, body, CONTENT_TYPES["text"], vary=_VARY)

    async def live(self, request: web.Request) -> web.StreamResponse:
        return await self._streams.answer(request, self._pages, self._orders(request))

    async def document(self, request: web.Request) -> web.Response:
        """Return the cluster in the requested format."""
        wanted = requested_format(request, hub_openapi.FLEET_TYPES)
        names = self.namespaces(request)
        self._pages.require_known(names)
        body = await self._pages.document(wanted, names)
        headers = _saved_as("nodes") if wanted == "csv" else {}
        return await reply(request, body, CONTENT_TYPES[wanted], vary=_VARY, headers=headers)

    async def advice(self, request: web.Request) -> web.Response:
        """Return the advice in the requested format; 503 with the reason while there is none."""
        wanted = requested_format(request, ADVICE_TYPES)
        names = self.namespaces(request)
        read = self._pages.current().advice
        if read.found is None:
            return web.Response(status=503, text=f"{read.error}\n")
        self._pages.require_known(names)
        body = await self._pages.advice(read, read.found, wanted, names)
        headers = _saved_as("advice") if wanted == "csv" else {}
        return await reply(request, body, ADVICE_TYPES[wanted], vary=_VARY, headers=headers)

    async def metrics(self, _request: web.Request) -> web.Response:
        headers = {"Content-Type": CONTENT_TYPE_LATEST}
        return web.Response(body=generate_latest(self._registry), headers=headers)

    async def healthy(self, _request: web.Request) -> web.Response:
        """Return 200: the process answers, and no restart of it fixes an unreachable Prometheus."""
        return web.Response(text="ok\n")

    def _orders(self, request: web.Request) -> Orders:
        orders = {name: one_of(request.query, name, keys) or "" for name, keys in ORDERS.items()}
        return Orders(namespace=self.namespaces(request), **orders)

    def namespaces(self, request: web.Request) -> tuple[str, ...]:
        """Return the namespaces that a request asks for, () for all that the hub shows."""
        names = short_texts(request.query, "namespace", hub_openapi.LONGEST_NAME)
        self._pages.require_shown(names)
        return names

    async def ready(self, _request: web.Request) -> web.Response:
        """Return 200 if there is data to show, else 503."""
        done = self._pages.current().fleet is not None
        return web.Response(status=200 if done else 503, text="ok\n" if done else "no data yet\n")
