"""aiohttp's side of a connection, with words of ours for what is no HTTP."""

import ipaddress
import logging
import resource
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import HttpVersion10, HttpVersion11, web
from aiohttp.http_exceptions import HttpProcessingError

log = logging.getLogger(__name__)

# The longest line and the longest header of a request, in bytes.
MOST_LINE = 8190
MOST_HEADERS = 128
_ONLY_EXPECTATION = "100-continue"
_EXPECTS = "What this request expects is not done here.\n"
_VERSIONS = (HttpVersion10, HttpVersion11)
_VERSION = "Only HTTP/1.0 and HTTP/1.1 are spoken here.\n"
_FOREIGN = web.RequestKey("_FOREIGN", bool)
_NOT_HTTP = "This is no request that is answered: it is not HTTP, or a line of it is too long.\n"

Headers = Callable[[], Mapping[str, str]]


def refuse_what_is_not_spoken(server: web.Server, headers: Headers) -> None:
    """Have a server refuse, in words of ours, other versions of HTTP, and expectations beyond its one.

    aiohttp would answer in the version that the client names, whatever that is, and repeat to the client
    what it expects, or log at length that it cannot.
    """
    answer, make = server.request_handler, server.request_factory

    def spoken(message: Any, *rest: Any) -> web.BaseRequest:
        if message.version in _VERSIONS:
            return make(message, *rest)
        request = make(message._replace(version=HttpVersion11), *rest)
        request[_FOREIGN] = True
        return request

    async def refuse(request: web.BaseRequest) -> web.StreamResponse:
        if _FOREIGN in request:
            return _closing(505, _VERSION, headers)
        if request.headers.get("Expect", _ONLY_EXPECTATION).lower() == _ONLY_EXPECTATION:
            return await answer(request)
        return _closing(417, _EXPECTS, headers)

    server.request_handler, server.request_factory = refuse, spoken


class Handler(web.RequestHandler):
    """Parses requests and has them answered; ``headers`` gives what every answer says."""

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
        """Answer what the application never saw; clients who send such things do not fill the log."""
        if isinstance(exc, ConnectionError):
            # The client has gone, for whom there is no answer: aiohttp ends the connection by this.
            raise exc
        if not isinstance(exc, HttpProcessingError):
            return super().handle_error(request, status, exc, message)
        log.debug("malformed HTTP request: %r", exc.message)
        return _closing(status, _NOT_HTTP, self._headers)

    def log_exception(self, *args: Any, **options: Any) -> None:
        """Log what went wrong, unless it is a body that nobody reads: clients can send any number of them."""
        if isinstance(options.get("exc_info"), web.RequestPayloadError | HttpProcessingError):
            log.debug("malformed request body: %r", options["exc_info"])
        else:
            super().log_exception(*args, **options)


def _closing(status: int, text: str, headers: Headers) -> web.Response:
    """Make the last answer of a connection."""
    response = web.Response(status=status, text=text, headers={"Cache-Control": "no-cache", **headers()})
    response.force_close()
    return response


MOST_CONNECTIONS = 1000
# Files and sockets that the rest of the program may need: of drivers, of the kubelet, of /proc.
FILES_OF_OURS = 256
_LEAST_CONNECTIONS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Times are in seconds, sizes in bytes.

    ``share`` is how much of all connections one client address may have. ``head`` is how long a request may
    take to arrive, ``idle`` how long a connection stays without one, and ``behind`` how long a client may
    leave untaken what it was sent. ``most_head`` is how much a request may say in all.
    """

    connections: int = MOST_CONNECTIONS
    share: float = 0.75
    handshake: float = 10.0
    head: float = 10.0
    # Longer than the time between two scrapes, so that Prometheus finds its connection open.
    idle: float = 180.0
    behind: float = 30.0
    most_head: int = 32 * 1024

    @property
    def look(self) -> float:
        """How often connections are looked at, in seconds: soon enough for the shortest limit."""
        return min(self.handshake, self.head, self.idle, self.behind) / 4


def affordable(limits_of_process: tuple[int, int] | None = None) -> int:
    """Say how many connections fit into the files that this process may open, at most MOST_CONNECTIONS."""
    soft, _ = limits_of_process or resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(_LEAST_CONNECTIONS, min(MOST_CONNECTIONS, soft - FILES_OF_OURS))


def client_of(peer: object) -> str:
    """Name a client by the address of its socket: IPv6 by its /64, of which anybody has all addresses."""
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
