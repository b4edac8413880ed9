"""One connection: what stands between its socket and HTTP, and knows how long it has been waited for.

A connection waits for a request, or its request is being answered. Beside that it may be in its TLS
handshake, behind with taking what it was sent, closing, or retired, because what let it in is no longer in
force. Each of these has its limit; an answer that the client takes may last as long as it will.
"""

import asyncio
import logging
import socket
import ssl
import struct
from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast

from exporter.web.http.handler import Handler, Limits, client_of
from exporter.web.http.responses import PORTION, ROOM

log = logging.getLogger(__name__)
_END_OF_HEAD = b"\r\n\r\n"
# Behind the head of a request nobody needs to send more than this before it is answered, in bytes.
_MOST_AHEAD = 1024 * 1024
# Who says that no more will come still gets what was asked for before, if that is made so soon, in seconds.
_AFTER_END = 1.0


class Tls(Protocol):
    """How connections are secured now."""

    @property
    def context(self) -> ssl.SSLContext | None:
        """With which certificate, and whose are asked for; None for plain HTTP."""

    def lets_in(self, certificate: Mapping[str, Any] | None) -> bool:
        """Tell whether a client with this certificate, which is verified, may come in."""


class Keeper(Protocol):
    """Who keeps all connections."""

    def admit(self, connection: "Connection") -> bool:
        """Take one in, if it may."""

    def left(self, connection: "Connection") -> None:
        """Forget one; it may be forgotten already."""


class Connection(asyncio.Protocol):
    """Passes what comes on to a handler of HTTP; ``clock`` gives seconds, as the event loop does."""

    def __init__(
        self, handler: Handler, keeper: Keeper, limits: Limits, tls: Tls | None, clock: Callable[[], float]
    ) -> None:
        self.handler = handler
        self.client = ""
        self.since = clock()
        """When it began to wait for what it waits for."""
        self.room = PORTION
        """How many bytes of an answer may be handed over before the client has taken any."""
        self._keeper = keeper
        self._limits = limits
        self._tls = tls
        self._clock = clock
        self._transport: asyncio.Transport | None = None
        self._handshake: asyncio.Task[None] | None = None
        # What came before the handler is ready for it; None once it is.
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
    def answering(self) -> bool:
        """Whether a request is being answered."""
        return self._answers > 0

    @property
    def dispensable(self) -> bool:
        """Whether it may be closed to make room: it waits for no answer, or does not take it."""
        return not self.answering or self._behind_since is not None

    def widen(self) -> None:
        """Have the kernel take so much of an answer that most need not be waited for."""
        if self._transport is not None:
            wire = self._transport.get_extra_info("socket")
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ROOM)
            self.room = ROOM

    def begin(self, *, has_body: bool) -> None:
        """Note that a request has come; one with a body is the last of its connection."""
        self._served = True
        # A request that came ahead may begin before it is heard that the one before is done.
        self._answers += 1
        self._last = self._last or has_body
        self._received, self._tail, self._has_head = 0, b"", False

    def done(self, *_: object) -> None:
        """Note that it is answered, and that what comes next is waited for."""
        self._answers -= 1
        self.since = self._clock()
        if self._retired_since is not None and not self.answering:
            self.close()

    def retire(self) -> None:
        """Close it once its request is answered; a stream of events has as long as a request has to come."""
        self._retired_since = self._clock()
        if not self.answering:
            self.close()

    def close(self) -> None:
        """Close it when all is sent that is on its way."""
        if self._early is not None:
            self.abort()
        elif self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close it at once."""
        if self._handshake is not None:
            self._handshake.cancel()
        if self._transport is not None:
            self._transport.abort()

    def check(self) -> None:
        """Cut it off where its time is over."""
        reason = "" if self._early is not None else self._overdue(self._clock())
        if reason:
            log.debug("closed the connection of %s: %s", self.client, reason)
            self._forget_unsent()
            self.abort()

    def _forget_unsent(self) -> None:
        """Have the kernel let go of what the client does not take; else it would keep that for minutes."""
        taken = self._behind_since is None and self._closing_since is None
        wire = None if taken or self._transport is None else self._transport.get_extra_info("socket")
        if wire is not None and wire.fileno() >= 0:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def _overdue(self, now: float) -> str:
        limits = self._limits
        if self._closing_since is None and self._transport is not None and self._transport.is_closing():
            self._closing_since = now
        for since, most, reason in (
            (self._closing_since, limits.behind, "it does not take the rest of its answer"),
            (self._behind_since, limits.behind, "it does not take its answer"),
            (self._retired_since, limits.head, "what let it in is no longer in force"),
        ):
            if since is not None and now - since > most:
                return reason
        idle = self._served and not self._received and not self._last
        waits_too_long = now - self.since > (limits.idle if idle else limits.head)
        return "no whole request came" if waits_too_long and not self.answering else ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the socket, and secure it first where that is asked for."""
        plain = self._transport = cast("asyncio.Transport", transport)
        self.client = client_of(plain.get_extra_info("peername"))
        if not self._keeper.admit(self):
            plain.abort()
            return
        context = self._tls.context if self._tls is not None else None
        if context is None:
            self._make_ready(plain)
        else:
            plain.pause_reading()
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
            # The frames in it hold the error, and with it all that TLS keeps, until a garbage collection.
            error.__traceback__ = None
        finally:
            self._handshake = None
            if self._early is not None:
                plain.abort()
                self._keeper.left(self)

    def _lets_in(self, secured: asyncio.Transport) -> bool:
        allowed = self._tls is not None and self._tls.lets_in(secured.get_extra_info("peercert"))
        if not allowed:
            log.debug("certificate of %s has no allowed name", self.client)
        return allowed and not secured.is_closing()

    def _make_ready(self, transport: asyncio.Transport) -> None:
        early, self._early = self._early, None
        self._transport, self.since = transport, self._clock()
        # Below a portion, so that one that is not taken is not followed by the next.
        transport.set_write_buffer_limits(high=PORTION // 2)
        self.handler.connection_made(transport)
        for data in early or ():
            self.data_received(data)

    def data_received(self, data: bytes) -> None:
        """Pass on what came, unless that is more than a request may be."""
        if self._early is not None:
            self._early.append(data)
        elif self._may_send(data):
            self.handler.data_received(data)
        else:
            log.debug("closed the connection of %s: it sends too much", self.client)
            self.abort()

    def _may_send(self, data: bytes) -> bool:
        if self._last:
            return True  # the body of a request that is refused, which nobody keeps
        if not self.answering:
            if not self._received:
                self.since = self._clock()
            seen = self._tail + data
            end = seen.find(_END_OF_HEAD)
            if end >= 0 and not self._has_head:
                self._has_head = self._received - len(self._tail) + end <= self._limits.most_head
            self._tail = seen[1 - len(_END_OF_HEAD) :]
        self._received += len(data)
        most = _MOST_AHEAD if self.answering or self._has_head else self._limits.most_head
        return self._received <= most

    def eof_received(self) -> bool:
        """Pass on that nothing more will come, and tell whether to keep the socket for what was asked for.

        That is so for a while, but never for TLS, of which a half cannot be closed.
        """
        if self._early is not None:
            return False
        self.handler.eof_received()
        secured = self._tls is not None and self._tls.context is not None
        if secured or not (self.answering or self._has_head):
            return False
        asyncio.get_running_loop().call_later(_AFTER_END, self.close)
        return True

    def pause_writing(self) -> None:
        """Note that the client is behind."""
        self._behind_since = self._clock()
        self.handler.pause_writing()

    def resume_writing(self) -> None:
        """Note that it has caught up."""
        self._behind_since = None
        self.handler.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._keeper.left(self)
        if self._early is None:
            self.handler.connection_lost(exc)
