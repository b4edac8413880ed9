"""The application of a node: its pages, metrics, API and health."""

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from aiohttp import web

from exporter.exposition import accepts_gzip, choose_format
from exporter.history.ended import EndedHolders
from exporter.history.plan import span_text
from exporter.history.ring import History
from exporter.model import Snapshot
from exporter.web.kit.application import build_app
from exporter.web.kit.http import assets
from exporter.web.kit.http.responses import ADVICE_TYPES, CONTENT_TYPES, reply
from exporter.web.kit.live.broadcaster import Broadcaster, Ticker
from exporter.web.kit.openapi import describe
from exporter.web.kit.parameters import prefers_html, requested_format, require_json
from exporter.web.node.caches import DocumentCache, MetricsCache, PageCache
from exporter.web.node.openapi import operations
from exporter.web.node.parameters import PATHS, Kind, Place, requested_place
from exporter.web.node.timelines import routes as timeline_routes

# The pages that are also text.
_AS_TEXT = frozenset({"node", "holder"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The site of one node."""

    current: Callable[[], Snapshot]  # returns the newest snapshot
    pages: PageCache
    documents: DocumentCache
    metrics: MetricsCache
    restart_reason: Callable[[], str | None]  # why the process needs a restart, None if it does not
    past: History
    ticker: Ticker = field(default_factory=Ticker)  # ticks with each snapshot


def make_app(site: Site, *, prefix: str = "", frame_ancestors: Sequence[str] = ()) -> web.Application:
    """Return the application of a node, also served below the path ``prefix``, such as ``/gpuslice``.

    ``frame_ancestors`` are the origins of pages that may frame it.
    """
    streams = Broadcaster(site.ticker)
    routes = [
        *page_routes(site, streams),
        *api_routes(site),
        *timeline_routes.routes(site.past, site.current),
        describe.route(operations.document),
        *assets.routes(),
    ]
    app = build_app(routes, prefix=prefix, frame_ancestors=frame_ancestors)
    app.on_shutdown.append(streams.close)
    return app


def page_routes(site: Site, streams: Broadcaster) -> list[web.RouteDef]:
    """Return the routes of pages, and of the streams that keep them up to date."""

    async def answer(kind: Kind, request: web.Request) -> web.Response:
        """Return a page; the node and a holder also as text, for programs such as curl."""
        place = requested_place(kind, request)
        of_text = kind in _AS_TEXT and not prefers_html(request)
        page = await (_text(site, place) if of_text else site.pages.html(place))
        if page is None:
            raise web.HTTPNotFound(text=_why_none(kind, site.pages.ended))
        content_type = CONTENT_TYPES["text"] if of_text else "text/html; charset=utf-8"
        vary = "Accept, Accept-Encoding" if kind in _AS_TEXT else "Accept-Encoding"
        return await reply(request, page, content_type, vary=vary)

    async def follow(kind: Kind, request: web.Request) -> web.StreamResponse:
        return await streams.answer(request, site.pages, requested_place(kind, request))

    return [
        *(web.get(f"/{path}", partial(answer, kind)) for kind, path in PATHS.items()),
        *(web.get(f"/live/{path}", partial(follow, kind)) for kind, path in PATHS.items()),
    ]


async def _text(site: Site, place: Place) -> bytes | None:
    if place.kind == "holder":
        return await site.pages.holder_text(place)
    return await site.documents.snapshot_as("text")


def _why_none(kind: Kind, ended: EndedHolders) -> str:
    if kind != "holder":
        return f"No such {kind}; the node page lists all of them."
    kept = span_text(ended.kept)
    return (
        "No container of this name holds or uses a GPU of this node, and none is known that did in the last "
        f"{kept}. Holders that ended are kept that long (--history-retention), of very many only the newest, "
        "and none from before the exporter's start. The node page lists those that are there."
    )


def api_routes(site: Site) -> list[web.RouteDef]:
    """Return the routes for programs."""
    machine = _Machine(site)
    return [
        web.get("/metrics", machine.metrics),
        web.get("/api/v1/snapshot", machine.snapshot),
        web.get("/api/v1/doctor", machine.doctor),
        web.get("/api/v1/advice", machine.advice),
        web.get("/-/healthy", machine.healthy),
        web.get("/-/ready", machine.ready),
    ]


@dataclass(frozen=True, slots=True)
class _Machine:
    site: Site

    async def metrics(self, request: web.Request) -> web.Response:
        fmt = choose_format(request.headers.get("Accept", ""))
        zipped = accepts_gzip(request.headers.get("Accept-Encoding", ""))
        headers = {"Content-Type": fmt.content_type, "Vary": "Accept, Accept-Encoding"}
        if zipped:
            headers["Content-Encoding"] = "gzip"
        return web.Response(body=await self.site.metrics.body(fmt, zipped), headers=headers)

    async def snapshot(self, request: web.Request) -> web.Response:
        """Return the snapshot in the requested format."""
        return await self._formatted(request, CONTENT_TYPES, self.site.documents.snapshot_as, "gpuslice")

    async def advice(self, request: web.Request) -> web.Response:
        """Return which slice would fit each holder, or why that is unknown, in the requested format."""
        return await self._formatted(request, ADVICE_TYPES, self.site.documents.advice_as, "gpuslice-advice")

    async def _formatted(
        self,
        request: web.Request,
        formats: Mapping[str, str],
        make: Callable[[str], Awaitable[bytes]],
        name: str,
    ) -> web.Response:
        """Return a body in the requested format; CSV is saved as a file of the node, called ``name``."""
        wanted = requested_format(request, formats)
        headers = {}
        if wanted == "csv":
            # Safe in file names and headers.
            node = re.sub(r"[^a-zA-Z0-9_.-]", "_", self.site.current().node.name)
            headers = {"Content-Disposition": f'attachment; filename="{name}-{node}.csv"'}
        body, vary = await make(wanted), "Accept, Accept-Encoding"
        return await reply(request, body, formats[wanted], vary=vary, headers=headers)

    async def doctor(self, request: web.Request) -> web.Response:
        """Return what ``doctor --json`` prints, by the last poll."""
        require_json(request)
        report = await self.site.documents.doctor()
        if not report.checks:
            raise web.HTTPServiceUnavailable(text="The first poll is not done yet.")
        return await reply(request, json.dumps(report.as_dict()).encode(), CONTENT_TYPES["json"])

    async def healthy(self, _request: web.Request) -> web.Response:
        """Return 503 only if a restart helps, because the kubelet then restarts the container."""
        reason = self.site.restart_reason()
        return web.Response(status=503 if reason else 200, text=f"{reason or 'ok'}\n")

    async def ready(self, _request: web.Request) -> web.Response:
        """Return 200 after the first poll, even if it found nothing: the node must still be scraped."""
        done = self.site.current().sequence > 0
        return web.Response(status=200 if done else 503, text="ok\n" if done else "before the first poll\n")
