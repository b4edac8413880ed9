"""aiohttp's side of a connection, with words of ours for what is no HTTP."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

log = logging.getLogger(__name__)

# The longest line and the longest header of a request, in bytes.
MOST_LINE = 8190
MOST_HEADERS = 128
_NOT_HTTP = "This is no request that is answered: it is not HTTP, or a line of it is too long.\n"


class Handler(web.RequestHandler):
    """Parses requests and has them answered; ``headers`` gives what every answer says."""

    __slots__ = ("_headers",)

    def __init__(self, server: web.Server, headers: Callable[[], Mapping[str, str]], **options: Any) -> None:
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
        if not isinstance(exc, HttpProcessingError):
            return super().handle_error(request, status, exc, message)
        log.debug("a request that is not HTTP: %r", exc.message)
        response = web.Response(
            status=status, text=_NOT_HTTP, headers={"Cache-Control": "no-cache", **self._headers()}
        )
        response.force_close()
        return response
