"""Starting and stopping the HTTP server."""

import asyncio
import logging
import os
import socket
from asyncio.sslproto import SSLProtocol
from typing import TYPE_CHECKING

from aiohttp import web

from exporter.config.settings import ListenAddress
from exporter.web.auth import gate_of
from exporter.web.http.connection import Connection
from exporter.web.http.connections import Connections, tell_seldom
from exporter.web.http.handler import (
    MOST_HEADERS,
    MOST_LINE,
    Handler,
    Limits,
    affordable,
    refuse_what_is_not_spoken,
)
from exporter.web.http.responses import headers_of

if TYPE_CHECKING:
    from exporter.web.auth.reload import WebAccess

log = logging.getLogger(__name__)

# Requests that are being answered when the program ends get this long.
SHUTDOWN_SECONDS = 0.5
# The rest of a request that was refused for its body is waited for so long, so that the answer is read.
LINGER_SECONDS = 0.5
# How many clients wait to be let in, in the kernel: who finds no place there tries again only after a second.
BACKLOG = 1024
# How many of them are let in at once. Those who have to go for them, or may not stay, keep their sockets for
# some moments more, and all of these together must fit into the files that are left to the program.
ADMITTED_AT_ONCE = 16
# What the kernel keeps for each connection, in bytes: of an answer on its way, and of what was not read yet.
# It takes twice as much memory, which counts as that of the program. By itself it would take megabytes for
# clients that do not read, or send on and on.
SEND_BUFFER = 32 * 1024
RECEIVE_BUFFER = 16 * 1024
# What asyncio keeps for each connection with TLS from its first byte on, in bytes. By itself it would keep
# 256 KiB, which adds up to more than this program may take, and nobody need be let in for it. A record of TLS
# is 16 KiB.
TLS_BUFFER = 16 * 1024


class ListenError(Exception):
    """The address cannot be listened on; the text names it and says what to do."""


class Server:
    """Serves an application on one address until it is stopped.

    ``access`` says who is let in, and how connections are secured; without it, everybody over plain HTTP.
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
        self._limits = limits or Limits(connections=affordable())
        # Nothing is waited for in the name of a client that has gone.
        self._runner = web.AppRunner(app, shutdown_timeout=SHUTDOWN_SECONDS, handler_cancellation=True)
        self._gate = gate_of(access)
        self._connections: Connections | None = None
        self._listener: asyncio.Server | None = None
        self._following: asyncio.Task[None] | None = None

    @property
    def connections(self) -> int:
        """How many are open now."""
        return len(self._connections or ())

    async def start(self) -> str:
        """Listen, and return the URL of the page; raises ListenError."""
        self._connections = Connections(self._limits)
        self._app.middlewares.insert(0, self._connections.middleware)
        if self._gate is not None:
            self._gate.guard(self._app)
        await self._runner.setup()
        assert self._runner.server is not None  # noqa: S101 - for mypy: it is set up
        refuse_what_is_not_spoken(self._runner.server, lambda: headers_of(self._app))
        if self._access is not None:
            SSLProtocol.max_size = TLS_BUFFER
        self._listener = await self._listening()
        if self._access is not None:
            following = self._access.follow(self._connections.retire)
            self._following = asyncio.get_running_loop().create_task(following, name="web-config")
        host, port = self._listener.sockets[0].getsockname()[:2]
        shown = "localhost" if host in ("0.0.0.0", "::") else host
        scheme = "https" if self._access is not None and self._access.context is not None else "http"
        return f"{scheme}://{f'[{shown}]' if ':' in shown else shown}:{port}/"

    async def _listening(self) -> asyncio.Server:
        listen, loop = self._listen, asyncio.get_running_loop()
        tell_seldom(loop)
        try:
            listener = await loop.create_server(
                self._connection, listen.host or None, listen.port, backlog=ADMITTED_AT_ONCE
            )
        except OSError as error:
            await self._runner.cleanup()
            # Numbers below 0 are those of name resolution, which strerror does not know.
            number = error.errno or 0
            reason = os.strerror(number) if number > 0 else error.strerror
            raise ListenError(f"cannot listen on {listen}: {reason}; choose another with --listen") from None
        for listening in listener.sockets:
            # Connections have them from the socket that they came by.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                # An answer that the kernel has as a whole is none that anybody here would wait for.
                untaken = int(self._limits.behind * 1000)
                listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, untaken)
            # For asyncio both are one number.
            with listening.dup() as same:
                same.listen(BACKLOG)
        return listener

    async def stop(self) -> None:
        """Close the listener and all connections."""
        if self._following is not None:
            self._following.cancel()
        if self._listener is not None:
            self._listener.close()
        await self._runner.cleanup()
        if self._connections is not None:
            self._connections.close()
        if self._gate is not None:
            self._gate.close()

    def _connection(self) -> Connection:
        """Make what serves a new connection."""
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
            max_line_size=MOST_LINE,
            max_field_size=MOST_LINE,
            max_headers=MOST_HEADERS,
            # No body is taken, so none is unpacked: that may be a bomb, and fill the log where it is none.
            auto_decompress=False,
        )
        return Connection(handler, self._connections, self._limits, self._access, loop.time)
