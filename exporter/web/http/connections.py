"""All connections of a server: how many there may be, who has to go for whom, and who is cut off."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Iterable
from itertools import groupby
from typing import Any

from aiohttp import web

from exporter.web.http.connection import Connection
from exporter.web.http.handler import Limits
from exporter.web.http.responses import PORTION, portioned

log = logging.getLogger(__name__)
# That there are too many is worth a line so often, in seconds.
_QUIET = 60.0
# So many have room in the kernel for a whole page of metrics. Scrapers are few; a crowd would take too much.
WIDE = 128

Handle = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Connections:
    """Keeps the connections within limits; in a running event loop."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_handler: dict[web.RequestHandler, Connection] = {}
        self._clients: dict[str, set[Connection]] = {}
        self._wide: set[Connection] = set()
        self._loop = asyncio.get_running_loop()
        self._look: asyncio.TimerHandle | None = None
        self._told = -_QUIET

    def __len__(self) -> int:
        """Count them."""
        return len(self._by_handler)

    def admit(self, connection: Connection) -> bool:
        """Take one in; where all places are taken, in place of one that nobody misses.

        Behind one address there may be many clients, so a crowd of it makes room too for who comes by it.
        """
        client, most = connection.client, self._limits.connections
        crowd = self._clients.get(client, set())
        if len(crowd) >= most * self._limits.share:
            told = f"{client} has as many connections as one client may have: {len(crowd)}"
            self._tell(f"{told}; each new one replaces an idle one, or is closed")
            if not self._make_room([crowd]):
                return False
        if len(self) >= most and not self._make_room(self._clients.values()):
            told = f"as many connections are open as there may be, and all are in use: {most}"
            self._tell(f"{told}; new ones are closed")
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
        """Forget one; it may be forgotten already."""
        if self._by_handler.pop(connection.handler, None) is None:
            return
        self._wide.discard(connection)
        crowd = self._clients[connection.client]
        crowd.remove(connection)
        if not crowd:
            del self._clients[connection.client]

    def retire(self) -> None:
        """Close all of them as soon as their requests are answered, so that all clients come in anew."""
        for connection in tuple(self._by_handler.values()):
            connection.retire()

    def close(self) -> None:
        """Close all of them at once."""
        for connection in tuple(self._by_handler.values()):
            connection.abort()
            self.left(connection)
        if self._look is not None:
            self._look.cancel()

    @property
    def middleware(self) -> Any:
        """The outermost of an application, which tells them which requests are being answered."""

        @web.middleware
        async def note(request: web.Request, handler: Handle) -> web.StreamResponse:
            connection = self._by_handler.get(request.protocol)
            task = asyncio.current_task()
            if connection is not None and task is not None:
                connection.begin(has_body=request.body_exists)
                # The task of a request ends when its answer is handed over as a whole.
                task.add_done_callback(connection.done)
            response = await handler(request)
            portioned(response, PORTION if connection is None else connection.room)
            return response

        return note

    def _make_room(self, crowds: Iterable[Collection[Connection]]) -> bool:
        """Close what has waited longest, of the client that has the most connections."""
        for _, as_large in groupby(sorted(crowds, key=len, reverse=True), key=len):
            dispensable = [each for crowd in as_large for each in crowd if each.dispensable]
            if dispensable:
                victim = min(dispensable, key=lambda each: each.since)
                victim.abort()
                self.left(victim)
                return True
        return False

    def _check(self) -> None:
        for connection in tuple(self._by_handler.values()):
            connection.check()
        again = bool(self._by_handler)
        self._look = self._loop.call_later(self._limits.look, self._check) if again else None

    def _tell(self, what: str) -> None:
        now = self._loop.time()
        if now - self._told >= _QUIET:
            self._told = now
            log.warning("%s", what)


log = logging.getLogger(__name__)
# That there is none is worth a line so often, in seconds.
_QUIET_AFTER = 60.0
# How asyncio names it, which logs each of them at length: hundreds in a moment.
_NO_SOCKET = "out of system resource"


def tell_seldom(loop: asyncio.AbstractEventLoop) -> None:
    """Have a loop log once a minute that it gets no socket, and all else as before."""
    before = loop.get_exception_handler()
    told = -math.inf

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal told
        if _NO_SOCKET in context.get("message", ""):
            if loop.time() - told >= _QUIET_AFTER:
                told = loop.time()
                log.error("cannot accept connections: %s: %s; retrying", _NO_SOCKET, context.get("exception"))
        elif before is not None:
            before(loop, context)
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)
