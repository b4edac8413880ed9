"""aiohttp's request handler with our error texts, and the limits of connections."""

import ipaddress
import logging
import resource
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import HttpVersion10, HttpVersion11, web
from aiohttp.http_exceptions import HttpProcessingError

log = logging.getLogger(__name__)

# Bytes of the longest request line and of the longest header.
MAX_LINE_BYTES = 8190
MAX_HEADERS = 128
_ONLY_EXPECTATION = "100-continue"
_EXPECTS = "The expectation of this request is not supported.\n"
_VERSIONS = (HttpVersion10, HttpVersion11)
_VERSION = "Only HTTP/1.0 and HTTP/1.1 are supported.\n"
_UNSUPPORTED_VERSION = web.RequestKey("_UNSUPPORTED_VERSION", bool)
_NOT_HTTP = "Bad request: it is not valid HTTP, or one of its lines is too long.\n"

Headers = Callable[[], Mapping[str, str]]


def refuse_unsupported(server: web.Server, headers: Headers) -> None:
    """Make a server refuse other versions of HTTP, and expectations other than 100-continue.

    aiohttp would answer in any version that the client names, and would repeat the client's expectation in
    its answer or log a traceback for it.
    """
    answer, make = server.request_handler, server.request_factory

    def make_supported(message: Any, *rest: Any) -> web.BaseRequest:
        if message.version in _VERSIONS:
            return make(message, *rest)
        request = make(message._replace(version=HttpVersion11), *rest)
        request[_UNSUPPORTED_VERSION] = True
        return request

    async def refuse(request: web.BaseRequest) -> web.StreamResponse:
        if _UNSUPPORTED_VERSION in request:
            return _closing(505, _VERSION, headers)
        if request.headers.get("Expect", _ONLY_EXPECTATION).lower() == _ONLY_EXPECTATION:
            return await answer(request)
        return _closing(417, _EXPECTS, headers)

    server.request_handler, server.request_factory = refuse, make_supported


class Handler(web.RequestHandler):
    """Parses requests and answers malformed ones; ``headers`` returns the headers of every answer."""

    __slots__ = ("_headers",)

    def __init__(self, server: web.Server, headers: Headers, **options: Any) -> None:
        super().__init__(server, **options)
        self._headers = headers

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


def _closing(status: int, text: str, headers: Headers) -> web.Response:
    """Return an answer that closes its connection."""
    response = web.Response(status=status, text=text, headers={"Cache-Control": "no-cache", **headers()})
    response.force_close()
    return response


MAX_CONNECTIONS = 1000
# File descriptors for the rest of the program: drivers, kubelet, /proc.
RESERVED_FILES = 256
_MIN_CONNECTIONS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a server's connections; times in seconds, sizes in bytes."""

    connections: int = MAX_CONNECTIONS
    # The part of all connections that one client address may have.
    share: float = 0.75
    handshake: float = 10.0
    # For a request to arrive.
    head: float = 10.0
    # Without a request. Longer than a scrape interval, so that Prometheus finds its connection open.
    idle: float = 180.0
    # For a client to read the data it was sent.
    behind: float = 30.0
    # All of a request before its body.
    max_head: int = 32 * 1024

    @property
    def look(self) -> float:
        """Seconds between two checks of all connections, short enough for the shortest limit."""
        return min(self.handshake, self.head, self.idle, self.behind) / 4


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
