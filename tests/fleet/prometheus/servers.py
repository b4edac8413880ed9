"""HTTP servers in place of a Prometheus."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from aiohttp.test_utils import TestServer

NOTHING = '{"status":"success","data":{"resultType":"vector","result":[]}}'
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Server:
    """A server and the requests that it received."""

    url: str = ""
    paths: list = field(default_factory=list)
    forms: list = field(default_factory=list)
    headers: list = field(default_factory=list)


def always(text: str = NOTHING, status: int = 200, **headers: str) -> Handler:
    """Return a handler that answers every request with one text."""

    async def handle(_request: web.Request) -> web.Response:
        return web.Response(
            status=status,
            text=text,
            headers={name.replace("_", "-"): value for name, value in headers.items()},
        )

    return handle


@asynccontextmanager
async def serving(handler: Handler, context: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """Run a server that answers every request with ``handler``."""
    server = Server()

    async def record(request: web.Request) -> web.StreamResponse:
        server.paths.append(request.rel_url.raw_path_qs)
        server.forms.append(dict(await request.post()))
        server.headers.append(dict(request.headers))
        return await handler(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", record)
    listening = TestServer(app, scheme="http" if context is None else "https")
    await listening.start_server(ssl=context)
    try:
        server.url = str(listening.make_url("")).rstrip("/")
        yield server
    finally:
        await listening.close()
