"""Servers that answer in a Prometheus's place, over real HTTP."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from aiohttp.test_utils import TestServer

NOTHING = '{"status":"success","data":{"resultType":"vector","result":[]}}'
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Answering:
    """A server at ``url`` with what it was asked: paths, forms, and headers."""

    url: str = ""
    paths: list = field(default_factory=list)
    forms: list = field(default_factory=list)
    headers: list = field(default_factory=list)


def saying(text: str = NOTHING, status: int = 200, **headers: str) -> Handler:
    """Answer everything with one text."""

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(
            status=status,
            text=text,
            headers={name.replace("_", "-"): value for name, value in headers.items()},
        )

    return answer


@asynccontextmanager
async def answering(handler: Handler, context: ssl.SSLContext | None = None) -> AsyncIterator[Answering]:
    """Run a server that answers every request with ``handler``."""
    asked = Answering()

    async def remember(request: web.Request) -> web.StreamResponse:
        asked.paths.append(request.rel_url.raw_path_qs)
        asked.forms.append(dict(await request.post()))
        asked.headers.append(dict(request.headers))
        return await handler(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", remember)
    server = TestServer(app, scheme="http" if context is None else "https")
    await server.start_server(ssl=context)
    try:
        asked.url = str(server.make_url("")).rstrip("/")
        yield asked
    finally:
        await server.close()
