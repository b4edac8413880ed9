"""The routes. GET and HEAD only: no request can change anything."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web

from exporter.web import machine, screens
from exporter.web.site import Site

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


def make_app(site: Site) -> web.Application:
    """Build the application."""
    app = web.Application(middlewares=[_secure], client_max_size=MAX_BODY)
    app.add_routes(screens.routes(site))
    app.add_routes(machine.routes(site))
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
