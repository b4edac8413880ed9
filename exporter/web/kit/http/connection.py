"""One connection: aiohttp's HTTP handler with our error texts, and limits for the time and size of a request.

aiohttp limits the time without a request. The kernel limits how long a client may not read its answer.
"""

import asyncio
import ipaddress
import logging
import resource
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import EMPTY_PAYLOAD, HttpVersion10, HttpVersion11, StreamReader, web
from aiohttp.http_exceptions import HttpProcessingError

from exporter.web.kit.http.responses import Headers

log = logging.getLogger(__name__)

# With TLS and a client that does not read, each takes half a megabyte, most of it asyncio's TLS buffer.
MAX_CONNECTIONS = 300
# File descriptors for the rest of the program: drivers, kubelet, /proc.
RESERVED_FILES = 256
_MIN_CONNECTIONS = 64
# Bytes that may follow the start of a request until the next one starts, without its body: heads of requests.
MAX_HEAD = 64 * 1024
# Bytes of an answer that are buffered until the client reads, besides the part that is being written.
WRITE_BUFFER = 16 * 1024
# Seconds that the rest of a refused body is read and discarded, so that the client reads its answer.
LINGER_SECONDS = 0.5
# A client that closes its half of the connection still gets an answer that is ready within these seconds.
_AFTER_EOF_SECONDS = 1.0
# Bytes of a body that are written in one go: usually a compressed page of metrics.
SENT_AT_ONCE = 96 * 1024
# Bytes of the longest request line and of the longest header.
MAX_LINE_BYTES = 8190
MAX_HEADERS = 128
_ONLY_EXPECTATION = "100-continue"
_EXPECTS = "The expectation of this request is not supported.\n"
_VERSIONS = (HttpVersion10, HttpVersion11)
_VERSION = "Only HTTP/1.0 and HTTP/1.1 are supported.\n"
_UNSUPPORTED_VERSION = web.RequestKey("_UNSUPPORTED_VERSION", bool)
_NOT_HTTP = "Bad request: it is not valid HTTP, or one of its lines is too long.\n"
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


def prepare(server: web.Server, headers: Headers) -> None:
    """Make a server refuse other versions of HTTP, and expectations other than 100-continue.

    aiohttp would answer in any version that the client names, and would repeat the client's expectation in
    its answer or log a traceback for it. Large bodies are sent in parts, since a transport may copy what a
    client does not read.
    """
    answer, make = server.request_handler, server.request_factory

    def make_supported(message: Any, body: StreamReader, handler: Any, *rest: Any) -> web.BaseRequest:
        handler.begin(body)
        if message.version in _VERSIONS:
            return make(message, body, handler, *rest)
        request = make(message._replace(version=HttpVersion11), body, handler, *rest)
        request[_UNSUPPORTED_VERSION] = True
        return request

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        if _UNSUPPORTED_VERSION in request:
            return _closing(505, _VERSION, headers)
        if request.headers.get("Expect", _ONLY_EXPECTATION).lower() != _ONLY_EXPECTATION:
            return _closing(417, _EXPECTS, headers)
        response = await answer(request)
        if isinstance(response, web.Response):
            body = response.body
            if isinstance(body, bytes) and len(body) > SENT_AT_ONCE:
                response.headers["Content-Length"] = str(len(body))
                response.body = _parts(body)
        return response

    server.request_handler, server.request_factory = respond, make_supported


async def _parts(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), SENT_AT_ONCE):
        yield body[start : start + SENT_AT_ONCE]


def _closing(status: int, text: str, headers: Headers) -> web.Response:
    """Return an answer that closes its connection."""
    response = web.Response(status=status, text=text, headers={"Cache-Control": "no-cache", **headers()})
    response.force_close()
    return response


class Connection(web.RequestHandler):
    """A connection of ``client``; with TLS, ``lets_in`` decides about its certificate.

    ``headers`` returns the headers of every answer.
    """

    __slots__ = (
        "_answering",
        "_body",
        "_headers",
        "_lets_in",
        "_limits",
        "_received",
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
            lingering_time=LINGER_SECONDS,
            max_line_size=MAX_LINE_BYTES,
            max_field_size=MAX_LINE_BYTES,
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
        return _closing(status, _NOT_HTTP, self._headers)

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
