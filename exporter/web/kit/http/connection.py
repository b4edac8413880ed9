"""One connection: enforces time and size limits between the socket and aiohttp's HTTP parser.

aiohttp has no time limit for a request to arrive or for a client to read its answer, so both are here. A
connection waits for a request or is answering one. It may also be in its TLS handshake, behind (the client
does not read), closing, or retired (the web config that admitted it was replaced). Each of these has a limit;
an answer that the client keeps reading has none.
"""

import asyncio
import logging
import socket
import ssl
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from exporter.web.kit.http.handler import Handler, Limits, client_of
from exporter.web.kit.http.responses import PORTION, ROOM

if TYPE_CHECKING:
    from exporter.web.kit.auth.access import WebAccess
    from exporter.web.kit.http.connections import Connections

log = logging.getLogger(__name__)
_END_OF_HEAD = b"\r\n\r\n"
# Bytes that a client may send after the head of a request and before its answer: pipelined requests.
_MAX_PIPELINED = 1024 * 1024
# A client that closes its half of the connection still gets the answers that are ready within these seconds.
_AFTER_EOF_SECONDS = 1.0
# A client that has just connected has these seconds to send its request before it may be replaced as idle.
_NEW_SECONDS = 1.0


class Connection(asyncio.Protocol):
    """Passes data to an HTTP handler within ``limits``; ``clock`` is the event loop's, in seconds."""

    def __init__(
        self,
        handler: Handler,
        registry: "Connections",
        limits: Limits,
        tls: "WebAccess | None",
        clock: Callable[[], float],
    ) -> None:
        self.handler = handler
        self.client = ""
        self.since = clock()
        """When it began to wait for the current request."""
        self.room = PORTION
        """Bytes of an answer that may be written before the client has read any."""
        self.streams = False
        """Whether its answer is an event stream, whose client reconnects when it is closed."""
        self._registry = registry
        self._limits = limits
        self._tls = tls
        self._clock = clock
        self._transport: asyncio.Transport | None = None
        self._handshake: asyncio.Task[None] | None = None
        # Data that came before the TLS handshake ended; None afterwards.
        self._early: list[bytes] | None = []
        self._served = False
        self._answers = 0
        self._last = False
        self._received = 0
        self._tail = b""
        self._has_head = False
        self._behind_since: float | None = None
        self._closing_since: float | None = None
        self._retired_since: float | None = None

    @property
    def is_gone(self) -> bool:
        """Whether its socket is closed."""
        return self._transport is None or self._transport.is_closing()

    @property
    def answering(self) -> bool:
        """Whether a request is being answered."""
        return self._answers > 0

    @property
    def replaceable(self) -> tuple[int, float] | None:
        """Its place among those that may be closed to make room, the smallest first; None if it may not.

        First those without a request or behind, then event streams, at last those that have just connected;
        among equals who waits longest.
        """
        if self._behind_since is None and self.answering:
            return (1, self.since) if self.streams else None
        new = not self._served and self._clock() - self.since < _NEW_SECONDS
        return (2 if new else 0), self.since

    def widen(self) -> None:
        """Enlarge the kernel's send buffer, so that most answers are written in one go."""
        if self._transport is not None:
            wire = self._transport.get_extra_info("socket")
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ROOM)
            self.room = ROOM

    def begin(self, *, has_body: bool) -> None:
        """Record the start of a request; one with a body is the last of its connection."""
        self._served, self.streams = True, False
        # A pipelined request may begin before done() is called for the one before it.
        self._answers += 1
        self._last = self._last or has_body
        self._received, self._tail, self._has_head = 0, b"", False

    def done(self, *_: object) -> None:
        """Record that a request is answered, and start to wait for the next."""
        self._answers -= 1
        self.since = self._clock()
        if self._retired_since is not None and not self.answering:
            self.close()

    def retire(self) -> None:
        """Close it after its current answer; an event stream is cut after ``limits.head`` seconds."""
        self._retired_since = self._clock()
        if not self.answering:
            self.close()

    def close(self) -> None:
        """Close it after the data in its buffer is sent."""
        if self._early is not None:
            self.abort()
        elif self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close it at once, without sending the rest."""
        if self._handshake is not None:
            self._handshake.cancel()
        if self._transport is not None:
            self._transport.abort()

    def check(self) -> None:
        """Abort it if one of its time limits is exceeded."""
        reason = "" if self._early is not None else self._overdue(self._clock())
        if reason:
            log.debug("closed the connection of %s: %s", self.client, reason)
            self._discard_unsent()
            self.abort()

    def _discard_unsent(self) -> None:
        """Let the kernel discard data that the client does not read; it would keep it for minutes."""
        reading = self._behind_since is None and self._closing_since is None
        wire = None if reading or self._transport is None else self._transport.get_extra_info("socket")
        if wire is not None and wire.fileno() >= 0:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def _overdue(self, now: float) -> str:
        limits = self._limits
        if self._closing_since is None and self._transport is not None and self._transport.is_closing():
            self._closing_since = now
        for since, limit, reason in (
            (self._closing_since, limits.behind, "the client does not read the rest of its answer"),
            (self._behind_since, limits.behind, "the client does not read its answer"),
            (self._retired_since, limits.head, "the web config that admitted it was replaced"),
        ):
            if since is not None and now - since > limit:
                return reason
        idle = self._served and not self._received and not self._last
        waits_too_long = now - self.since > (limits.idle if idle else limits.head)
        return "no complete request arrived" if waits_too_long and not self.answering else ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the socket and ask for a place."""
        plain = self._transport = cast("asyncio.Transport", transport)
        self.client = client_of(plain.get_extra_info("peername"))
        plain.pause_reading()
        self._registry.admit(self)

    def start(self) -> None:
        """Read the first request; with TLS, after the handshake."""
        plain = self._transport
        assert plain is not None  # noqa: S101 - for mypy: it is connected
        context = self._tls.context if self._tls is not None else None
        if context is None:
            self._make_ready(plain)
            plain.resume_reading()
        else:
            self._handshake = asyncio.get_running_loop().create_task(self._secure(plain, context))

    async def _secure(self, plain: asyncio.Transport, context: ssl.SSLContext) -> None:
        seconds = self._limits.handshake
        try:
            secured = await asyncio.get_running_loop().start_tls(
                plain,
                self,
                context,
                server_side=True,
                ssl_handshake_timeout=seconds,
                ssl_shutdown_timeout=seconds,
            )
            if secured is not None and self._lets_in(secured):
                self._make_ready(secured)
        except OSError as error:
            log.debug("TLS handshake with %s failed: %s", self.client, error)
            # The traceback refers to the TLS buffers and would keep them until a garbage collection.
            error.__traceback__ = None
        finally:
            self._handshake = None
            if self._early is not None:
                plain.abort()
                self._registry.left(self)

    def _lets_in(self, secured: asyncio.Transport) -> bool:
        allowed = self._tls is not None and self._tls.lets_in(secured.get_extra_info("peercert"))
        if not allowed:
            log.debug("the client certificate of %s has no allowed name", self.client)
        return allowed and not secured.is_closing()

    def _make_ready(self, transport: asyncio.Transport) -> None:
        early, self._early = self._early, None
        self._transport, self.since = transport, self._clock()
        # Below one portion, so that the next portion waits until this one is read.
        transport.set_write_buffer_limits(high=PORTION // 2)
        self.handler.connection_made(transport)
        for data in early or ():
            self.data_received(data)

    def data_received(self, data: bytes) -> None:
        """Pass data to the handler unless the request exceeds its size limit."""
        if self._early is not None:
            self._early.append(data)
        elif self._may_send(data):
            self.handler.data_received(data)
        else:
            log.debug("closed the connection of %s: its request is too large", self.client)
            self.abort()

    def _may_send(self, data: bytes) -> bool:
        if self._last:
            return True  # The body of a refused request, which is discarded.
        if not self.answering:
            if not self._received:
                self.since = self._clock()
            seen = self._tail + data
            end = seen.find(_END_OF_HEAD)
            if end >= 0 and not self._has_head:
                self._has_head = self._received - len(self._tail) + end <= self._limits.max_head
            self._tail = seen[1 - len(_END_OF_HEAD) :]
        self._received += len(data)
        limit = _MAX_PIPELINED if self.answering or self._has_head else self._limits.max_head
        return self._received <= limit

    def eof_received(self) -> bool:
        """Pass on the end of input; return whether to keep the socket open for answers under way.

        TLS connections cannot be half closed and are never kept.
        """
        if self._early is not None:
            return False
        self.handler.eof_received()
        secured = self._tls is not None and self._tls.context is not None
        if secured or not (self.answering or self._has_head):
            return False
        asyncio.get_running_loop().call_later(_AFTER_EOF_SECONDS, self.close)
        return True

    def pause_writing(self) -> None:
        """Record that the client is behind."""
        self._behind_since = self._clock()
        self.handler.pause_writing()

    def resume_writing(self) -> None:
        """Record that it has caught up."""
        self._behind_since = None
        self.handler.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove it from the registry."""
        self._registry.left(self)
        if self._early is None:
            self.handler.connection_lost(exc)
