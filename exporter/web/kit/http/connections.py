"""All connections of a server: accepts them up to their maximum, and keeps each until it ends."""

import asyncio
import logging
import math
import socket
import ssl
import time
from collections.abc import Callable

from exporter.web.kit.http.connection import Connection, Limits, client_of

log = logging.getLogger(__name__)
# Seconds between two warnings of one kind.
_QUIET_SECONDS = 60.0
# Seconds until the next try if a connection cannot be accepted, as without file descriptors.
_RETRY_SECONDS = 0.1


class RareWarning:
    """Logs a warning at most once a minute."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._last = -math.inf

    def __call__(self, text: str, *values: object) -> None:
        """Log a warning, unless there was one in the last minute."""
        now = time.monotonic()
        if now - self._last >= _QUIET_SECONDS:
            self._last = now
            self._log.warning(text, *values)


class Connections:
    """Open connections, made by ``make`` from the address of a client; new ones get TLS by ``tls``."""

    def __init__(
        self,
        limits: Limits,
        make: Callable[[str], Connection],
        tls: Callable[[], ssl.SSLContext | None],
    ) -> None:
        self._limits = limits
        self._make = make
        self._tls = tls
        self._open: dict[asyncio.Task[None], Connection] = {}
        self._warn = RareWarning(log)

    def __len__(self) -> int:
        """Return the number of open connections."""
        return len(self._open)

    async def accept(self, listener: socket.socket) -> None:
        """Accept connections forever, and close those beyond the maximum at once."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                wire, peer = await loop.sock_accept(listener)
            except OSError as error:
                self._warn("cannot accept connections: %s; retrying", error)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            client = client_of(peer)
            if self._has_room(client):
                connection = self._make(client)
                task = loop.create_task(self._keep(wire, connection))
                self._open[task] = connection
                task.add_done_callback(self._open.pop)
            else:
                wire.close()
            # Accepting does not wait while there are further connections: let others run.
            await asyncio.sleep(0)

    def retire(self) -> None:
        """Close each connection after its current answer, so that every client has to connect again."""
        for connection in self._open.values():
            connection.retire()

    async def close(self) -> None:
        """Close all connections at once."""
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _has_room(self, client: str) -> bool:
        most = self._limits.connections
        of_client = sum(connection.client == client for connection in self._open.values())
        if len(self) >= most:
            self._warn("closed a new connection of %s: all %d connections are in use", client, most)
        elif of_client >= most * self._limits.share:
            self._warn("closed a new connection of %s: it has %d, the most of one client", client, of_client)
        else:
            return True
        return False

    async def _keep(self, wire: socket.socket, connection: Connection) -> None:
        """Begin TLS if it is on, and wait until the connection ends."""
        context = self._tls()
        patience = self._limits.handshake if context is not None else None
        try:
            transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                wire,
                ssl=context,
                ssl_handshake_timeout=patience,
                ssl_shutdown_timeout=patience,
            )
        except OSError as error:
            log.debug("TLS handshake with %s failed: %s", connection.client, error)
            # The traceback refers to the TLS buffers and would keep them until a garbage collection.
            error.__traceback__ = None
            return
        try:
            await connection.closed.wait()
        finally:
            transport.abort()
