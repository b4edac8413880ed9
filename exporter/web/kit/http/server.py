"""Start and stop the HTTP server."""

import asyncio
import os
import socket
import ssl
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from aiohttp import web

from exporter.config import ListenAddress, SettingsError
from exporter.web.kit.http.connection import Connection, Limits, max_connections
from exporter.web.kit.http.connections import Connections
from exporter.web.kit.http.listeners import bind
from exporter.web.kit.http.refusals import SENT_AT_ONCE, prepare
from exporter.web.kit.http.responses import headers_of

if TYPE_CHECKING:
    from exporter.web.kit.auth.access import WebAccess

# Seconds that requests under way have at shutdown.
SHUTDOWN_SECONDS = 0.5
# Connections that wait in the kernel to be accepted; a client that finds it full retries after a second.
BACKLOG = 1024
# Kernel buffers of a connection in bytes. The kernel takes twice as much memory, which counts as the
# program's; by default it takes megabytes for clients that do not read or do not stop sending.
SEND_BUFFER = SENT_AT_ONCE
RECEIVE_BUFFER = 16 * 1024


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
        self._connections = Connections(self._limits, self._connection, self._tls)
        # Ends what was started, the latest first.
        self._started = AsyncExitStack()

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    async def start(self) -> str:
        """Start to listen and return the URL of the page; raises ListenError."""
        if self._access is not None:
            from exporter.web.kit.auth.gate import Gate  # noqa: PLC0415 - as in access_of

            gate = Gate(self._access)
            self._started.callback(gate.close)
            gate.guard(self._app)
        self._started.push_async_callback(self._connections.close)
        self._started.push_async_callback(self._runner.cleanup)
        await self._runner.setup()
        assert self._runner.server is not None  # noqa: S101 - for mypy: it is set up
        prepare(self._runner.server, lambda: headers_of(self._app))
        listeners = await self._listeners()
        running = [self._connections.accept(listener) for listener in listeners]
        if self._access is not None:
            running.append(self._access.follow(self._connections.retire))
        for each in running:
            self._started.callback(asyncio.create_task(each).cancel)
        host, port = listeners[0].getsockname()[:2]
        shown = "localhost" if host in ("0.0.0.0", "::") else host
        scheme = "http" if self._tls() is None else "https"
        return f"{scheme}://{f'[{shown}]' if ':' in shown else shown}:{port}/"

    async def stop(self) -> None:
        """Close the listeners and all connections."""
        await self._started.aclose()

    async def _listeners(self) -> list[socket.socket]:
        """Return a socket for each address of the host; raises ListenError."""
        listen = self._listen
        try:
            listeners = await bind(listen)
            for listener in listeners:
                self._started.enter_context(listener)
            for listener in listeners:
                self._open(listener)
        except OSError as error:
            await self.stop()
            # Numbers below 0 are errors of name resolution, which os.strerror does not know.
            number = error.errno or 0
            reason = os.strerror(number) if number > 0 else error.strerror
            raise ListenError(f"cannot listen on {listen}: {reason}; choose another with --listen") from None
        return listeners

    def _open(self, listener: socket.socket) -> None:
        """Listen; accepted sockets inherit the options."""
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        # The kernel closes connections whose clients do not read.
        milliseconds = int(self._limits.behind * 1000)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
        listener.listen(BACKLOG)

    def _connection(self, client: str) -> Connection:
        server = self._runner.server
        assert server is not None  # noqa: S101 - for mypy: it is set up
        return Connection(
            server,
            client,
            self._limits,
            lambda: headers_of(self._app),
            self._access.lets_in if self._access is not None else lambda _certificate: True,
        )

    def _tls(self) -> ssl.SSLContext | None:
        return self._access.context if self._access is not None else None
