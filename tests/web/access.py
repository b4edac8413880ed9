"""Serving a small site by a web configuration, for tests of who is let in."""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import ClientSession, TCPConnector, web

from exporter.config import ListenAddress
from exporter.web import Server
from exporter.web.app import build_app
from exporter.web.auth.access import WebAccess
from exporter.web.http.handler import Limits
from tests.web.certificates import PASSWORD

LOOK = 0.02
PATIENCE = 20.0


def says(user: str, password: str) -> dict[str, str]:
    """Give the header of a request with a password."""
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


RIGHT = says("ann", PASSWORD)


async def until(question: Callable[[], Awaitable[bool]]) -> None:
    """Ask until the answer is yes."""
    async with asyncio.timeout(PATIENCE):
        while not await question():  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(LOOK / 2)


class Site:
    """A server at ``url`` (without a slash at its end), and the limits it keeps to."""

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
        """Get a path over a connection of its own: status, headers and text."""
        async with (
            ClientSession(connector=TCPConnector(ssl=tls or True)) as client,
            client.get(self.url + path, headers=headers) as response,
        ):
            return response.status, response.headers, await response.text()

    async def raw(self, sent: bytes, tls: ssl.SSLContext | None = None) -> bytes:
        """Send bytes and give all that comes back until the connection is closed."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=tls)
        writer.write(sent)
        try:
            return await asyncio.wait_for(reader.read(), PATIENCE)
        finally:
            writer.transport.abort()


def small_app() -> web.Application:
    """Make an application with a page, a probe, and a stream that has no end."""

    async def page(_request: web.Request) -> web.Response:
        return web.Response(text="page")

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while request.transport is not None:
            await response.write(b"still here\n")
            await asyncio.sleep(0.02)
        return response

    pages = ("/", "/metrics", "/api/v1/stream", "/-/healthy", "/-/ready", "/static/{hash}/{name:.+}")
    return build_app([*(web.get(path, page) for path in pages), web.get("/endless", stream)])


@asynccontextmanager
async def serving(
    config: Path | None = None, app: web.Application | None = None, limits: Limits | None = None
) -> AsyncIterator[Site]:
    """Serve a small application by a web configuration."""
    access = WebAccess(config, look=LOOK) if config is not None else None
    server = Server(app or small_app(), ListenAddress("127.0.0.1", 0), access=access, limits=limits)
    url = await server.start()
    try:
        yield Site(url.removesuffix("/"), server)
    finally:
        await server.stop()
