"""Start and stop the HTTP server."""

import asyncio
import logging
import os
import socket
from asyncio.sslproto import SSLProtocol
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from aiohttp import web

from exporter.config import ListenAddress, SettingsError
from exporter.web.kit.http.connection import Connection
from exporter.web.kit.http.connections import Connections, limit_accept_errors
from exporter.web.kit.http.handler import (
    MAX_HEADERS,
    MAX_LINE_BYTES,
    Handler,
    Limits,
    max_connections,
    refuse_unsupported,
)
from exporter.web.kit.http.responses import headers_of

if TYPE_CHECKING:
    from exporter.web.kit.auth.access import WebAccess

log = logging.getLogger(__name__)

# Seconds that requests under way have at shutdown.
SHUTDOWN_SECONDS = 0.5
# Seconds that the rest of a refused body is read and discarded, so that the client reads its answer.
LINGER_SECONDS = 0.5
# Connections that wait in the kernel to be accepted; a client that finds it full retries after a second.
BACKLOG = 1024
# Connections accepted at once. Those that they replace keep their sockets for some moments, and all of them
# together must fit into the reserved file descriptors.
ACCEPTED_AT_ONCE = 16
# Kernel buffers of a connection in bytes. The kernel takes twice as much memory, which counts as the
# program's; by default it takes megabytes for clients that do not read or do not stop sending.
SEND_BUFFER = 32 * 1024
RECEIVE_BUFFER = 16 * 1024
# Bytes that asyncio reserves for each TLS connection from its first byte on, even before the handshake. Its
# default of 256 KiB adds up to more than the program's memory limit. A TLS record has 16 KiB.
TLS_BUFFER = 16 * 1024


class ListenError(SettingsError):
    """Raised if the server cannot listen on an address; the text names it and the remedy."""


class Server:
    """Serves an application on one address until it is stopped.

    ``access`` has the passwords and TLS settings; without it every client is served over plain HTTP.
    """

    def __init__(
        self,
        app: web.Application,
        listen: ListenAddress,
        *,
        access: "WebAccess | None" = None,
        limits: Limits | None = None,
    ) -> None:
        self._app = app
        self._listen = listen
        self._access = access
        self._limits = limits or Limits(connections=max_connections())
        # The handler of a client that is gone is cancelled.
        self._runner = web.AppRunner(app, shutdown_timeout=SHUTDOWN_SECONDS, handler_cancellation=True)
        self._connections: Connections | None = None
        # Ends what was started, the latest first.
        self._started = AsyncExitStack()

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._connections or ())

    async def start(self) -> str:
        """Start to listen and return the URL of the page; raises ListenError."""
        if self._access is not None:
            from exporter.web.kit.auth.gate import Gate  # noqa: PLC0415 - as in access_of

            gate = Gate(self._access)
            self._started.callback(gate.close)
            gate.guard(self._app)
        self._connections = Connections(self._limits)
        self._started.callback(self._connections.close)
        self._app.middlewares.insert(0, self._connections.middleware)
        self._started.push_async_callback(self._runner.cleanup)
        await self._runner.setup()
        assert self._runner.server is not None  # noqa: S101 - for mypy: it is set up
        refuse_unsupported(self._runner.server, lambda: headers_of(self._app))
        if self._access is not None:
            SSLProtocol.max_size = TLS_BUFFER
        listener = await self._listening()
        self._started.callback(listener.close)
        if self._access is not None:
            following = asyncio.create_task(self._access.follow(self._connections.retire), name="web-config")
            self._started.callback(following.cancel)
        host, port = listener.sockets[0].getsockname()[:2]
        shown = "localhost" if host in ("0.0.0.0", "::") else host
        scheme = "https" if self._access is not None and self._access.context is not None else "http"
        return f"{scheme}://{f'[{shown}]' if ':' in shown else shown}:{port}/"

    async def _listening(self) -> asyncio.Server:
        listen, loop = self._listen, asyncio.get_running_loop()
        limit_accept_errors(loop)
        try:
            listener = await loop.create_server(
                self._connection, listen.host or None, listen.port, backlog=ACCEPTED_AT_ONCE
            )
        except OSError as error:
            await self.stop()
            # Numbers below 0 are errors of name resolution, which os.strerror does not know.
            number = error.errno or 0
            reason = os.strerror(number) if number > 0 else error.strerror
            raise ListenError(f"cannot listen on {listen}: {reason}; choose another with --listen") from None
        for listening in listener.sockets:
            # Accepted sockets inherit these.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                # For answers that are wholly in the kernel's buffer: asyncio no longer waits for them.
                milliseconds = int(self._limits.behind * 1000)
                listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
            # asyncio uses one number for the queue and for the connections accepted at once.
            with listening.dup() as duplicate:
                duplicate.listen(BACKLOG)
        return listener

    async def stop(self) -> None:
        """Close the listener and all connections."""
        await self._started.aclose()

    def _connection(self) -> Connection:
        """Return the protocol of a new connection."""
        server = self._runner.server
        assert server is not None  # noqa: S101 - for mypy: who calls this listens
        assert self._connections is not None  # noqa: S101
        loop = asyncio.get_running_loop()
        handler = Handler(
            server,
            lambda: headers_of(self._app),
            loop=loop,
            access_log=None,
            logger=log.getChild("requests"),
            keepalive_timeout=self._limits.idle,
            lingering_time=LINGER_SECONDS,
            max_line_size=MAX_LINE_BYTES,
            max_field_size=MAX_LINE_BYTES,
            max_headers=MAX_HEADERS,
            # No request body is read, so none is decompressed: it may be a bomb, or fill the log.
            auto_decompress=False,
        )
        return Connection(handler, self._connections, self._limits, self._access, loop.time)
