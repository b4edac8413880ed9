"""Refusals of requests that do not reach the application: their texts, and the answers.

The limits of a head are named in the answers, because single sign-on puts tickets of many kilobytes into one
header, and browsers send all cookies of a host name.
"""

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from aiohttp import HttpVersion10, HttpVersion11, StreamReader, web

from exporter.web.kit.http.responses import Headers

# Bytes of the head of a request, and headers in it. Each header takes half a kilobyte of Python objects.
MAX_HEAD = 32 * 1024
MAX_HEADERS = 1024
# Bytes of a body that are written in one go: usually a compressed page of metrics.
SENT_AT_ONCE = 96 * 1024
_LIMITS = f"{MAX_HEAD // 1024} KiB in all, with {MAX_HEADERS:,} headers at most"
_ONLY_EXPECTATION = "100-continue"
_VERSIONS = (HttpVersion10, HttpVersion11)


class Refusal(NamedTuple):
    """The answer to a request that does not reach the application."""

    status: int
    text: str


NOT_HTTP = Refusal(400, "Bad request: it is not valid HTTP.\n")
TOO_LONG = Refusal(
    414, f"URL too long: the request line and the headers may have {_LIMITS}. Shorten the URL.\n"
)
TOO_LARGE = Refusal(
    431,
    f"Request headers too large: the request line and the headers may have {_LIMITS}. "
    "Delete the cookies of this host, or send fewer or shorter headers.\n",
)
_EXPECTS = Refusal(417, "The expectation of this request is not supported.\n")
_VERSION = Refusal(505, "Only HTTP/1.0 and HTTP/1.1 are supported.\n")
_REFUSAL = web.RequestKey("_REFUSAL", Refusal)


def prepare(server: web.Server, headers: Headers) -> None:
    """Make a server refuse large heads, other versions of HTTP, and expectations other than 100-continue.

    aiohttp would answer in any version that the client names, and would repeat the client's expectation in
    its answer or log a traceback for it. Large bodies are sent in parts, since a transport may copy what a
    client does not read.
    """
    answer, make = server.request_handler, server.request_factory

    def make_supported(message: Any, body: StreamReader, handler: Any, *rest: Any) -> web.BaseRequest:
        refusal = handler.begin(body)
        if message.version not in _VERSIONS:
            message, refusal = message._replace(version=HttpVersion11), refusal or _VERSION
        request = make(message, body, handler, *rest)
        if refusal is not None:
            request[_REFUSAL] = refusal
        return request

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        if _REFUSAL in request:
            return refuse(request[_REFUSAL], headers)
        if request.headers.get("Expect", _ONLY_EXPECTATION).lower() != _ONLY_EXPECTATION:
            return refuse(_EXPECTS, headers)
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


def refuse(refusal: Refusal, headers: Headers) -> web.Response:
    """Return an answer that closes its connection."""
    all_headers = {"Cache-Control": "no-cache", **headers()}
    response = web.Response(status=refusal.status, text=refusal.text, headers=all_headers)
    response.force_close()
    return response
