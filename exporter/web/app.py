"""The routes. GET and HEAD only: no request can change anything."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web

from exporter.exposition import accepts_gzip, choose_format
from exporter.web.pages import Pages

STATIC = Path(__file__).parent / "static"
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
# What one request may send: nothing, beyond its headers.
MAX_BODY = 1024

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def make_app(pages: Pages, restart_reason: Callable[[], str | None]) -> web.Application:
    """Build the application. ``restart_reason`` tells why the process should be restarted, or None."""
    views = _Views(pages, restart_reason)
    app = web.Application(middlewares=[_secure], client_max_size=MAX_BODY)
    app.router.add_get("/", views.node)
    app.router.add_get("/gpu/{uuid}", views.gpu)
    app.router.add_get("/metrics", views.metrics)
    app.router.add_get("/api/v1/snapshot", views.snapshot)
    app.router.add_get("/-/healthy", views.healthy)
    app.router.add_get("/-/ready", views.ready)
    app.router.add_static("/static", STATIC)
    return app


@web.middleware
async def _secure(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        response = await handler(request)
    except web.HTTPException as error:
        error.headers.update(SECURITY_HEADERS)
        raise
    response.headers.update(SECURITY_HEADERS)
    return response


class _Views:
    def __init__(self, pages: Pages, restart_reason: Callable[[], str | None]) -> None:
        self._pages = pages
        self._restart_reason = restart_reason

    async def metrics(self, request: web.Request) -> web.Response:
        fmt = choose_format(request.headers.get("Accept", ""))
        zipped = accepts_gzip(request.headers.get("Accept-Encoding", ""))
        headers = {"Content-Type": fmt.content_type, "Vary": "Accept, Accept-Encoding"}
        if zipped:
            headers["Content-Encoding"] = "gzip"
        return web.Response(body=await self._pages.metrics(fmt, zipped), headers=headers)

    async def snapshot(self, request: web.Request) -> web.Response:
        snapshot = self._pages.snapshot
        tag = f"{snapshot.sequence}-{snapshot.timestamp:.3f}"
        headers = {"ETag": f'"{tag}"', "Cache-Control": "no-cache"}
        if any(known.value == tag for known in request.if_none_match or ()):
            return web.Response(status=304, headers=headers)
        body = await self._pages.snapshot_json()
        return web.Response(body=body, content_type="application/json", charset="utf-8", headers=headers)

    async def node(self, _request: web.Request) -> web.Response:
        headers = {"Cache-Control": "no-cache"}
        body = await self._pages.node_html()
        return web.Response(body=body, content_type="text/html", charset="utf-8", headers=headers)

    async def gpu(self, request: web.Request) -> web.Response:
        headers = {"Cache-Control": "no-cache"}
        body = await self._pages.gpu_html(request.match_info["uuid"])
        if body is None:
            raise web.HTTPNotFound(text="no such GPU; the page of the node lists those that there are\n")
        return web.Response(body=body, content_type="text/html", charset="utf-8", headers=headers)

    async def healthy(self, _request: web.Request) -> web.Response:
        """Fail only where a restart helps: the kubelet then restarts the container."""
        reason = self._restart_reason()
        return web.Response(status=503 if reason else 200, text=f"{reason or 'ok'}\n")

    async def ready(self, _request: web.Request) -> web.Response:
        """Say whether the first poll is done; a node where it found nothing must still be scraped."""
        done = self._pages.snapshot.sequence > 0
        return web.Response(status=200 if done else 503, text="ok\n" if done else "before the first poll\n")
