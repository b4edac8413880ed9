"""Serving a small site with a web configuration."""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import ClientSession, TCPConnector, web

from exporter.config import ListenAddress
from exporter.web.kit.application import build_app
from exporter.web.kit.auth.access import WebAccess
from exporter.web.kit.http.connection import Limits
from exporter.web.kit.http.server import Server
from tests.page.web.certificates import PASSWORD
from tests.waiting import LIMIT_SECONDS, wait_until_async

LOOK = 0.02


def says(user: str, password: str) -> dict[str, str]:
    """Return the header of a request with a password."""
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


RIGHT = says("ann", PASSWORD)


async def until(question: Callable[[], Awaitable[bool]]) -> None:
    """Ask until the answer is yes."""
    await wait_until_async(question)


class Site:
    """A server at ``url``, which has no slash at its end."""

    def __init__(self, url: str, server: Server) -> None:
        self.url = url
        self.port = int(url.rpartition(":")[2])
        self.server = server

    async def get(
        self,
        path: str = "/",
        tls: ssl.SSLContext | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Mapping[str, str], str]:
        """Get a path over a new connection; return status, headers and text."""
        async with (
            ClientSession(connector=TCPConnector(ssl=tls or True)) as client,
            client.get(self.url + path, headers=headers) as response,
        ):
            return response.status, response.headers, await response.text()

    async def raw(self, sent: bytes, tls: ssl.SSLContext | None = None) -> bytes:
        """Send bytes; return all that comes back until the connection is closed."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=tls)
        writer.write(sent)
        try:
            return await asyncio.wait_for(reader.read(), LIMIT_SECONDS)
        finally:
            writer.transport.abort()


def small_app() -> web.Application:
    """Return an application with a page, probes, and a stream without end."""

    async def page(_request: web.Request) -> web.Response:
        return web.Response(text="page")

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while request.transport is not None:
            await response.write(b"still here\n")
            await asyncio.sleep(0.02)
        return response

    pages = ("/", "/metrics", "/live/", "/-/healthy", "/-/ready", "/static/{hash}/{name:.+}")
    return build_app([*(web.get(path, page) for path in pages), web.get("/endless", stream)])


@asynccontextmanager
async def serving(
    config: Path | None = None, app: web.Application | None = None, limits: Limits | None = None
) -> AsyncIterator[Site]:
    """Serve an application with a web configuration."""
    access = WebAccess(config, look=LOOK) if config is not None else None
    server = Server(app or small_app(), ListenAddress("127.0.0.1", 0), access=access, limits=limits)
    url = await server.start()
    try:
        yield Site(url.removesuffix("/"), server)
    finally:
        await server.stop()
