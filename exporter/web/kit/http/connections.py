"""All connections of a server: their maximum, which one makes room for a new one, and time limits."""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable
from itertools import groupby
from typing import Any

from aiohttp import web

from exporter.web.kit.http.connection import Connection
from exporter.web.kit.http.handler import Limits
from exporter.web.kit.http.responses import PORTION, portioned

log = logging.getLogger(__name__)
# Seconds between two log lines about too many connections, or about too few file descriptors.
_LOG_SECONDS = 60.0
# New connections that wait for a place while all others are being answered, and for how long, in seconds:
# many may ask for a page at the same moment, and wait until it is rendered.
WAITING = 32
WAITING_SECONDS = 2.0
_RETRY_SECONDS = 0.05
_WAITS = f"wait for a place, and are closed after {WAITING_SECONDS:g} s"
# Connections whose send buffer holds a whole page of metrics. Scrapers are few; a crowd would take too much.
WIDE = 128

Handle = Callable[[web.Request], Awaitable[web.StreamResponse]]
CONNECTION = web.RequestKey("CONNECTION", Connection)
"""The connection of a request."""


class Connections:
    """Keeps the number of connections and their times within ``limits``; needs a running event loop."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_handler: dict[web.RequestHandler, Connection] = {}
        self._clients: dict[str, set[Connection]] = {}
        self._wide: set[Connection] = set()
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[Connection, float]] = deque()
        self._look: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._logged = -math.inf

    def __len__(self) -> int:
        """Return the number of open connections."""
        return len(self._by_handler)

    def admit(self, connection: Connection) -> None:
        """Add a connection and start it, if need be in place of another or later; else close it.

        Many clients may share one address, so a full address makes room for its own new connections, too.
        """
        if self._placed(connection):
            connection.start()
        elif len(self._waiting) < WAITING:
            self._waiting.append((connection, self._loop.time() + WAITING_SECONDS))
            if self._retry is None:
                self._retry = self._loop.call_later(_RETRY_SECONDS, self._admit_waiting)
        else:
            connection.abort()

    def _admit_waiting(self) -> None:
        """Start those that waited longest while there is room, and close those that waited too long."""
        while self._waiting:
            connection, end = self._waiting[0]
            if connection.is_gone or self._loop.time() > end:
                connection.abort()
            elif self._placed(connection):
                connection.start()
            else:
                break
            self._waiting.popleft()
        again = bool(self._waiting)
        self._retry = self._loop.call_later(_RETRY_SECONDS, self._admit_waiting) if again else None

    def _placed(self, connection: Connection) -> bool:
        client, most = connection.client, self._limits.connections
        crowd = self._clients.get(client, set())
        if len(crowd) >= most * self._limits.share:
            self._warn(
                f"{client} has the most connections one client may have ({len(crowd)}); "
                f"new ones replace idle ones and streams, or {_WAITS}"
            )
            if not self._make_room([crowd]):
                return False
        if len(self) >= most and not self._make_room(self._clients.values()):
            self._warn(f"all {most} connections are in use; new ones {_WAITS}")
            return False
        self._by_handler[connection.handler] = connection
        self._clients.setdefault(client, set()).add(connection)
        if len(self._wide) < WIDE:
            self._wide.add(connection)
            connection.widen()
        if self._look is None:
            self._look = self._loop.call_later(self._limits.look, self._check)
        return True

    def left(self, connection: Connection) -> None:
        """Remove a connection, which may be removed already."""
        if self._by_handler.pop(connection.handler, None) is None:
            return
        self._wide.discard(connection)
        crowd = self._clients[connection.client]
        crowd.remove(connection)
        if not crowd:
            del self._clients[connection.client]

    def retire(self) -> None:
        """Close each connection after its current answer, so that every client has to connect again."""
        for connection in tuple(self._by_handler.values()):
            connection.retire()

    def close(self) -> None:
        """Close all connections at once."""
        for connection in (*self._by_handler.values(), *(waiting for waiting, _ in self._waiting)):
            connection.abort()
            self.left(connection)
        for timer in (self._look, self._retry):
            if timer is not None:
                timer.cancel()

    @property
    def middleware(self) -> Any:
        """The outermost middleware: records which connections are answering a request."""

        @web.middleware
        async def note(request: web.Request, handler: Handle) -> web.StreamResponse:
            connection = self._by_handler.get(request.protocol)
            task = asyncio.current_task()
            if connection is not None and task is not None:
                request[CONNECTION] = connection
                connection.begin(has_body=request.body_exists)
                # The task of a request ends when its answer is handed over as a whole.
                task.add_done_callback(connection.done)
            response = await handler(request)
            portioned(response, PORTION if connection is None else connection.room)
            return response

        return note

    def _make_room(self, crowds: Iterable[Collection[Connection]]) -> bool:
        """Close one connection of the client that has the most; return False if none may be closed."""
        for _, as_large in groupby(sorted(crowds, key=len, reverse=True), key=len):
            places = {each: each.replaceable for crowd in as_large for each in crowd}
            victims = {each: place for each, place in places.items() if place is not None}
            if victims:
                victim = min(victims, key=victims.__getitem__)
                victim.abort()
                self.left(victim)
                return True
        return False

    def _check(self) -> None:
        for connection in tuple(self._by_handler.values()):
            connection.check()
        again = bool(self._by_handler)
        self._look = self._loop.call_later(self._limits.look, self._check) if again else None

    def _warn(self, text: str) -> None:
        now = self._loop.time()
        if now - self._logged >= _LOG_SECONDS:
            self._logged = now
            log.warning("%s", text)


# How asyncio's message contains it; without a filter it logs hundreds of them with tracebacks.
_NO_SOCKET = "out of system resource"


def limit_accept_errors(loop: asyncio.AbstractEventLoop) -> None:
    """Make an event loop log at most once a minute that it cannot accept connections."""
    previous = loop.get_exception_handler()
    logged = -math.inf

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal logged
        if _NO_SOCKET in context.get("message", ""):
            if loop.time() - logged >= _LOG_SECONDS:
                logged = loop.time()
                log.error("cannot accept connections: %s: %s; retrying", _NO_SOCKET, context.get("exception"))
        elif previous is not None:
            previous(loop, context)
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)
