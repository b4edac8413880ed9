"""One connection: aiohttp's HTTP handler, with limits for the time and size of a request.

aiohttp limits the time without a request. The kernel limits how long a client may not read its answer.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import EMPTY_PAYLOAD, StreamReader, web

from exporter.web.kit.http.handler import MAX_HEADERS, MAX_LINE_BYTES, Handler
from exporter.web.kit.http.limits import Limits
from exporter.web.kit.http.responses import Headers

log = logging.getLogger(__name__)

# Bytes that may follow the start of a request until the next one starts, without its body: heads of requests.
MAX_HEAD = 64 * 1024
# Bytes of an answer that are buffered until the client reads, besides the part that is being written.
WRITE_BUFFER = 16 * 1024
# Seconds that the rest of a refused body is read and discarded, so that the client reads its answer.
LINGER_SECONDS = 0.5
# A client that closes its half of the connection still gets an answer that is ready within these seconds.
_AFTER_EOF_SECONDS = 1.0

LetsIn = Callable[[Mapping[str, Any] | None], bool]


class Connection(Handler):
    """A connection of ``client``; with TLS, ``lets_in`` decides about its certificate."""

    __slots__ = ("_answering", "_body", "_lets_in", "_limits", "_received", "_timer", "client", "closed")

    def __init__(
        self, server: web.Server, client: str, limits: Limits, headers: Headers, lets_in: LetsIn
    ) -> None:
        super().__init__(
            server,
            headers,
            loop=asyncio.get_running_loop(),
            access_log=None,
            logger=log.getChild("requests"),
            keepalive_timeout=limits.idle,
            lingering_time=LINGER_SECONDS,
            max_line_size=MAX_LINE_BYTES,
            max_field_size=MAX_LINE_BYTES,
            max_headers=MAX_HEADERS,
            # No request body is read, so none is decompressed: it may be a bomb, or fill the log.
            auto_decompress=False,
        )
        self.client = client
        self.closed = asyncio.Event()
        self._limits = limits
        self._lets_in = lets_in
        self._answering = False
        self._body: StreamReader = EMPTY_PAYLOAD
        self._received = 0
        # Ends the connection unless the head of a request is complete before.
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first request, unless the client is not allowed."""
        assert isinstance(transport, asyncio.WriteTransport)  # noqa: S101 - for mypy
        if self._lets_in(transport.get_extra_info("peercert")):
            # asyncio's default with TLS is half a megabyte.
            transport.set_write_buffer_limits(high=WRITE_BUFFER)
            super().connection_made(transport)
            self._start_timer()
        else:
            log.debug("the client certificate of %s has no allowed name", self.client)
            transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Set ``closed``."""
        self._stop_timer()
        super().connection_lost(exc)
        self.closed.set()

    def data_received(self, data: bytes) -> None:
        """Parse data unless it is too large."""
        # The body of a refused request is discarded.
        if data and self._body.is_eof():
            self._received += len(data)
            if not self._answering and self._timer is None:
                self._start_timer()
        if self._received > MAX_HEAD:
            self._cut_off("its request is too large")
        else:
            super().data_received(data)

    def eof_received(self) -> bool:  # type: ignore[override] # aiohttp's never keeps it
        """Return whether to keep the socket for the answer under way; TLS cannot be half closed."""
        keeps = self._answering and self.ssl_context is None
        if keeps:
            self._loop.call_later(_AFTER_EOF_SECONDS, self.force_close)
        return keeps

    def begin(self, body: StreamReader) -> None:
        """Record the start of a request, whose head is complete."""
        self._stop_timer()
        self._answering, self._body, self._received = True, body, 0

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send the rest of an answer."""
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self._answering = False

    def retire(self) -> None:
        """Close it after its current answer, which is cut off after ``limits.head`` seconds."""
        if self._answering:
            self.close()
            self._start_timer()
        else:
            self.force_close()

    def _start_timer(self) -> None:
        self._timer = self._loop.call_later(self._limits.head, self._cut_off, "it took too long")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _cut_off(self, reason: str) -> None:
        log.debug("closed the connection of %s: %s", self.client, reason)
        if self.transport is not None:
            self.transport.abort()
