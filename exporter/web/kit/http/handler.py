"""aiohttp's request handler with our error texts."""

import logging
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import HttpVersion10, HttpVersion11, StreamReader, web
from aiohttp.http_exceptions import HttpProcessingError

from exporter.web.kit.http.responses import Headers

log = logging.getLogger(__name__)

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


class Handler(web.RequestHandler):
    """Parses requests and answers malformed ones; ``headers`` returns the headers of every answer."""

    __slots__ = ("_headers",)

    def __init__(self, server: web.Server, headers: Headers, **options: Any) -> None:
        super().__init__(server, **options)
        self._headers = headers

    def begin(self, body: StreamReader) -> None:
        """Handle the start of a request, before it is answered."""

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
