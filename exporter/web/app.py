"""The application of a node: its pages, metrics, API and health, and the responses to errors.

GET and HEAD only: no request can change anything. Browsers get errors as a page, clients that accept JSON get
``{"error": …}``, and others a line of text.
"""

import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus

from aiohttp import web

from exporter.exposition import accepts_gzip, choose_format
from exporter.exposition.negotiation import media_quality
from exporter.history.ring import History
from exporter.web.html import error_page
from exporter.web.http import assets
from exporter.web.http.responses import ADVICE_TYPES, CONTENT_TYPES, ZIPPER, Zipper, reply, secure
from exporter.web.live.broadcaster import Broadcaster, Ticker
from exporter.web.openapi import describe, operations
from exporter.web.parameters import PATHS, Kind, prefers_html, requested_format, requested_place, require_json
from exporter.web.render_cache import RenderCache
from exporter.web.timelines import routes as timeline_routes

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The site of one node."""

    pages: RenderCache
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
        *timeline_routes.routes(site),
        describe.route(operations.document),
        *assets.routes(),
    ]
    app = build_app(routes, prefix=prefix, frame_ancestors=frame_ancestors)
    app.on_shutdown.append(streams.close)
    return app


def page_routes(site: Site, streams: Broadcaster) -> list[web.RouteDef]:
    """Return the routes of pages, and of the streams that keep them up to date."""

    async def answer(kind: Kind, request: web.Request) -> web.Response:
        """Return a page; the node also as text, for programs such as curl."""
        place = requested_place(kind, request)
        vary = "Accept, Accept-Encoding" if kind == "node" else "Accept-Encoding"
        if kind == "node" and not prefers_html(request):
            text = await site.pages.snapshot_as("text")
            return await reply(request, text, CONTENT_TYPES["text"], vary=vary)
        page = await site.pages.html(place)
        if page is None:
            raise web.HTTPNotFound(text=f"No such {kind}; the node page lists all of them.")
        return await reply(request, page, "text/html; charset=utf-8", vary=vary)

    async def follow(kind: Kind, request: web.Request) -> web.StreamResponse:
        return await streams.answer(request, site.pages, requested_place(kind, request))

    return [
        *(web.get(f"/{path}", partial(answer, kind)) for kind, path in PATHS.items()),
        *(web.get(f"/live/{path}", partial(follow, kind)) for kind, path in PATHS.items()),
    ]


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
        return web.Response(body=await self.site.pages.metrics(fmt, zipped), headers=headers)

    async def snapshot(self, request: web.Request) -> web.Response:
        """Return the snapshot in the requested format."""
        return await self._formatted(request, CONTENT_TYPES, self.site.pages.snapshot_as, "gpuslice")

    async def advice(self, request: web.Request) -> web.Response:
        """Return which slice would fit each holder, or why that is unknown, in the requested format."""
        return await self._formatted(request, ADVICE_TYPES, self.site.pages.advice_as, "gpuslice-advice")

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
            node = re.sub(r"[^a-zA-Z0-9_.-]", "_", self.site.pages.snapshot.node.name)
            headers = {"Content-Disposition": f'attachment; filename="{name}-{node}.csv"'}
        body, vary = await make(wanted), "Accept, Accept-Encoding"
        return await reply(request, body, formats[wanted], vary=vary, headers=headers)

    async def doctor(self, request: web.Request) -> web.Response:
        """Return what ``doctor --json`` prints, by the last poll."""
        require_json(request)
        report = await self.site.pages.doctor()
        if not report.checks:
            raise web.HTTPServiceUnavailable(text="The first poll is not done yet.")
        return await reply(request, json.dumps(report.as_dict()).encode(), CONTENT_TYPES["json"])

    async def healthy(self, _request: web.Request) -> web.Response:
        """Return 503 only if a restart helps, because the kubelet then restarts the container."""
        reason = self.site.restart_reason()
        return web.Response(status=503 if reason else 200, text=f"{reason or 'ok'}\n")

    async def ready(self, _request: web.Request) -> web.Response:
        """Return 200 after the first poll, even if it found nothing: the node must still be scraped."""
        done = self.site.pages.snapshot.sequence > 0
        return web.Response(status=200 if done else 503, text="ok\n" if done else "before the first poll\n")


_METHODS = ("GET", "HEAD")
_SENTENCES = {
    404: "There is no such page.",
    405: "Only GET and HEAD are allowed: this server is read-only.",
    413: "Requests with a body are not allowed.",
    500: "The response could not be made. The exporter's log has the reason.",
}
_OF_CONTENT = frozenset({"Content-Type", "Content-Length"})
# Whether the response of this task's request has begun, so that it cannot be replaced by an error.
_begun = ContextVar("begun", default=False)


def build_app(
    routes: Sequence[web.RouteDef], *, prefix: str = "", frame_ancestors: Sequence[str] = ()
) -> web.Application:
    """Return an application with these routes, and the headers, errors and compression that all have."""
    app = web.Application()
    app[ZIPPER] = Zipper()
    secure(app, frame_ancestors)
    answer_errors(app, prefix)
    if prefix:
        # First, because the prefix may look like one of the paths.
        app.add_routes(
            web.route(route.method, prefix + route.path, route.handler, **route.kwargs) for route in routes
        )
    app.add_routes(routes)
    if prefix:
        app.add_routes([_redirect_to_folder(prefix)])
    return app


def _redirect_to_folder(prefix: str) -> web.RouteDef:
    """Return the redirect from a path to the same with a slash; relative, since proxies may change paths."""
    folder = f"{prefix.rpartition('/')[2]}/"

    async def redirect(request: web.Request) -> web.Response:
        query = request.rel_url.raw_query_string
        return web.Response(status=307, headers={"Location": f"{folder}?{query}" if query else folder})

    return web.get(prefix, redirect)


def answer_errors(app: web.Application, prefix: str) -> None:
    """Refuse requests that change something, and answer all errors of an application with our own texts.

    ``prefix`` is a path below which the application is served too.
    """

    async def begin(_request: web.Request, _response: web.StreamResponse) -> None:
        _begun.set(True)

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        _begun.set(False)
        try:
            _refuse(request)
            return await handler(request)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            text = error.text if error.text != f"{error.status}: {error.reason}" else None
            headers = {name: value for name, value in error.headers.items() if name not in _OF_CONTENT}
            return _problem(request, error.status, text or "", prefix, headers)
        except ConnectionError:
            # The client has disconnected.
            raise
        except Exception:
            if _begun.get():
                raise
            log.exception("request for %r failed", request.path)
            return _problem(request, 500, "", prefix)

    app.middlewares.append(answer)
    app.on_response_prepare.append(begin)


def _refuse(request: web.Request) -> None:
    if request.method not in _METHODS:
        raise web.HTTPMethodNotAllowed(request.method, _METHODS)
    if request.body_exists:
        raise web.HTTPRequestEntityTooLarge(max_size=0, actual_size=request.content_length or 0, text="")


def _problem(
    request: web.Request, status: int, text: str, prefix: str, headers: Mapping[str, str] | None = None
) -> web.Response:
    sentence = (text or _SENTENCES.get(status, "")).strip()
    if prefers_html(request):
        path = request.rel_url.raw_path
        below = path.removeprefix(prefix) if path.startswith(f"{prefix}/") else path
        root = "../" * max(below.count("/") - 1, 0)
        body, content_type = error_page(status, HTTPStatus(status).phrase, sentence, root), "text/html"
    elif media_quality(request.headers.get("Accept", ""), "application/json"):
        body, content_type = json.dumps({"error": sentence}), "application/json"
    else:
        body, content_type = f"{sentence}\n", "text/plain"
    all_headers = {"Cache-Control": "no-cache", "Vary": "Accept", **(headers or {})}
    response = web.Response(status=status, text=body, content_type=content_type, headers=all_headers)
    if request.body_exists:
        response.force_close()
    return response
