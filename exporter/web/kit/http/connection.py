"""One connection: aiohttp's HTTP handler with our error texts, and limits for the time and size of a request.

aiohttp limits the time without a request. The kernel limits how long a client may not read its answer.
"""

import asyncio
import contextlib
import ipaddress
import logging
import resource
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import EMPTY_PAYLOAD, StreamReader, web
from aiohttp.http_exceptions import HttpProcessingError

from exporter.web.kit.http.refusals import MAX_HEAD, MAX_HEADERS, NOT_HTTP, TOO_LARGE, Refusal, refuse
from exporter.web.kit.http.request_head import HeadMeter
from exporter.web.kit.http.responses import Headers

log = logging.getLogger(__name__)

# With TLS and a client that does not read, each takes half a megabyte, most of it asyncio's TLS buffer.
MAX_CONNECTIONS = 300
# File descriptors for the rest of the program: drivers, kubelet, /proc.
RESERVED_FILES = 256
_MIN_CONNECTIONS = 64
# Bytes of an answer that are buffered until the client reads, besides the part that is being written.
WRITE_BUFFER = 16 * 1024
# Closing a socket with unread data resets the connection, and the client may lose its answer: what it still
# sends is read and discarded. Bytes that are, and seconds between two looks at the client.
MAX_DISCARDED = 8 * 1024 * 1024
LINGER_SECONDS = 0.5
# A client that closes its half of the connection still gets an answer that is ready within these seconds.
_AFTER_EOF_SECONDS = 1.0
# Bytes of a line for aiohttp's parser: more than one read of a socket returns, since heads are measured here.
_PARSED_AT_ONCE = 1024 * 1024
# What no head can have: the parser's error is answered behind the answers to earlier requests.
_INVALID = b"\0\r\n\r\n"
_TOO_MANY = "Too many headers received"  # aiohttp's words
LetsIn = Callable[[Mapping[str, Any] | None], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a server's connections; times in seconds."""

    connections: int = MAX_CONNECTIONS
    # The part of all connections that one client address may have.
    share: float = 0.75
    handshake: float = 10.0
    # For the head of a request to arrive.
    head: float = 10.0
    # Without a request. Longer than a scrape interval, so that Prometheus finds its connection open.
    idle: float = 180.0
    # For a client to read the data it was sent.
    behind: float = 30.0


def max_connections(limits_of_process: tuple[int, int] | None = None) -> int:
    """Return how many connections this process has file descriptors for, at most MAX_CONNECTIONS."""
    soft, _ = limits_of_process or resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(_MIN_CONNECTIONS, min(MAX_CONNECTIONS, soft - RESERVED_FILES))


def client_of(peer: object) -> str:
    """Return the address of a socket's peer; for IPv6 its /64, which usually belongs to one client."""
    host = str(peer[0]) if isinstance(peer, tuple) and peer else ""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.IPv6Network((address, 64), strict=False))
    return str(address)


class Connection(web.RequestHandler):
    """A connection of ``client``; with TLS, ``lets_in`` decides about its certificate.

    ``headers`` returns the headers of every answer.
    """

    __slots__ = (
        "_answering",
        "_begun",
        "_body",
        "_body_size",
        "_discarded",
        "_discards",
        "_ended",
        "_head",
        "_headers",
        "_lets_in",
        "_limits",
        "_refused",
        "_timer",
        "client",
        "closed",
    )

    def __init__(
        self, server: web.Server, client: str, limits: Limits, headers: Headers, lets_in: LetsIn
    ) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type] # aiohttp allows it
            logger=log.getChild("requests"),
            keepalive_timeout=limits.idle,
            lingering_time=0,  # done here
            max_line_size=_PARSED_AT_ONCE,
            max_field_size=_PARSED_AT_ONCE,
            max_headers=MAX_HEADERS,
            # No request body is read, so none is decompressed: it may be a bomb, or fill the log.
            auto_decompress=False,
        )
        self.client = client
        self.closed = asyncio.Event()
        self._headers = headers
        self._limits = limits
        self._lets_in = lets_in
        self._answering = False
        self._begun = 0  # requests
        self._body: StreamReader = EMPTY_PAYLOAD
        self._body_size = 0  # bytes of it for the parser
        self._head = HeadMeter()
        # The number of the request that is refused for its head, counted from 1, and the answer.
        self._refused: tuple[int, Refusal] | None = None
        self._discards = False
        self._discarded = 0
        self._ended = asyncio.Event()  # nothing more comes from the client
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
        self._ended.set()
        super().connection_lost(exc)
        self.closed.set()

    def data_received(self, data: bytes) -> None:
        """Parse data, unless a request before it is refused."""
        if not data:
            # What was buffered is parsed.
            super().data_received(data)
        elif self._discards or self._body_size > MAX_HEAD:
            self._discarded += len(data)
            if self._discarded > MAX_DISCARDED and self.transport is not None:
                self.transport.pause_reading()
        elif self._body.is_eof():
            if not self._answering and self._timer is None:
                self._start_timer()
            self._parse_head(data)
        else:
            # The parser keeps trailers of a body.
            self._body_size += len(data)
            super().data_received(data)

    def _parse_head(self, data: bytes) -> None:
        known = self._request_count
        self._head.add(data)
        super().data_received(data)
        refusal = self._head.refusal
        if refusal is not None:
            self._refused = known + 1, refusal
            if self._request_count == known:
                super().data_received(_INVALID)
            self._discards = True
        elif self._request_count != known:
            self._head.restart(data)

    def eof_received(self) -> bool:  # type: ignore[override] # aiohttp's never keeps it
        """Return whether to keep the socket for the answer under way; TLS cannot be half closed."""
        self._ended.set()
        keeps = self._answering and self.ssl_context is None
        if keeps:
            self._loop.call_later(_AFTER_EOF_SECONDS, self.force_close)
        return keeps

    def begin(self, body: StreamReader) -> Refusal | None:
        """Record the start of a request, whose head is complete, and return why it is refused."""
        self._stop_timer()
        self._begun += 1
        self._answering, self._body, self._body_size = True, body, 0
        if not body.is_eof():
            self._head.restart()
        return self._refusal()

    def _refusal(self) -> Refusal | None:
        """Return why the last request that has begun is refused."""
        number, refusal = self._refused or (0, None)
        return refusal if number == self._begun else None

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send the rest of an answer; if it closes the connection, read what the client still sends."""
        try:
            answered = await super().finish_response(request, resp, start_time)
            if not self._body.is_eof() or (self._discards and not resp.keep_alive):
                await self._linger()
            return answered
        finally:
            self._answering = False

    async def _linger(self) -> None:
        """Discard what comes until the client closes, or as long as the head of a request may take."""
        transport, self._discards, before = self.transport, True, -1
        if transport is None:
            return
        # The client may be gone.
        with contextlib.suppress(OSError, TimeoutError):
            # TLS cannot be half closed: a client that reads to the end gets it once it sends nothing more.
            half_closes = transport.can_write_eof()
            if half_closes:
                transport.write_eof()
            async with asyncio.timeout(self._limits.head):
                while not self._ended.is_set() and (half_closes or self._discarded != before):
                    before = self._discarded
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._ended.wait(), LINGER_SECONDS)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer a request that did not reach the application, without filling the log."""
        if isinstance(exc, ConnectionError):
            # The client is gone. aiohttp ends the connection by this error.
            raise exc
        if not isinstance(exc, HttpProcessingError):
            return super().handle_error(request, status, exc, message)
        log.debug("malformed HTTP request: %r", exc.message)
        self._discards = True
        other = TOO_LARGE if _TOO_MANY in exc.message else NOT_HTTP
        return refuse(self._refusal() or other, self._headers)

    def log_exception(self, *args: Any, **options: Any) -> None:
        """Log an error, at debug level if it is a malformed body: clients can send any number of them."""
        if isinstance(options.get("exc_info"), web.RequestPayloadError | HttpProcessingError):
            log.debug("malformed request body: %r", options["exc_info"])
        else:
            super().log_exception(*args, **options)

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
