"""Applications: the headers, compression and responses to errors that those of node and hub share.

GET and HEAD only: no request can change anything. Browsers get errors as a page, clients that accept JSON get
``{"error": …}``, and others a line of text.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from http import HTTPStatus

from aiohttp import web

from exporter.exposition.negotiation import media_quality
from exporter.web.kit.html import error_page
from exporter.web.kit.http.responses import ZIPPER, Zipper, secure
from exporter.web.kit.parameters import prefers_html

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_METHODS = ("GET", "HEAD")
_SENTENCES = {
    404: "There is no such page.",
    405: "Only GET and HEAD are allowed: this server is read-only.",
    413: "Requests with a body are not allowed.",
    500: "The response could not be made. The exporter's log has the reason.",
}
_OF_CONTENT = frozenset({"Content-Type", "Content-Length"})
# Whether the response of this task's request has begun, so that it cannot be replaced by an error.
_begun = ContextVar("begun", default=False)


def build_app(
    routes: Sequence[web.RouteDef], *, prefix: str = "", frame_ancestors: Sequence[str] = ()
) -> web.Application:
    """Return an application with these routes, and the headers, errors and compression that all have."""
    app = web.Application()
    app[ZIPPER] = Zipper()
    secure(app, frame_ancestors)
    answer_errors(app, prefix)
    if prefix:
        # First, because the prefix may look like one of the paths.
        app.add_routes(
            web.route(route.method, prefix + route.path, route.handler, **route.kwargs) for route in routes
        )
    app.add_routes(routes)
    if prefix:
        app.add_routes([_redirect_to_folder(prefix)])
    return app


def _redirect_to_folder(prefix: str) -> web.RouteDef:
    """Return the redirect from a path to the same with a slash; relative, since proxies may change paths."""
    folder = f"{prefix.rpartition('/')[2]}/"

    async def redirect(request: web.Request) -> web.Response:
        query = request.rel_url.raw_query_string
        return web.Response(status=307, headers={"Location": f"{folder}?{query}" if query else folder})

    return web.get(prefix, redirect)


def answer_errors(app: web.Application, prefix: str) -> None:
    """Refuse requests that change something, and answer all errors of an application with our own texts.

    ``prefix`` is a path below which the application is served too.
    """

    async def begin(_request: web.Request, _response: web.StreamResponse) -> None:
        _begun.set(True)

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        _begun.set(False)
        try:
            _refuse(request)
            return await handler(request)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            text = error.text if error.text != f"{error.status}: {error.reason}" else None
            headers = {name: value for name, value in error.headers.items() if name not in _OF_CONTENT}
            return _problem(request, error.status, text or "", prefix, headers)
        except ConnectionError:
            # The client has disconnected.
            raise
        except Exception:
            if _begun.get():
                raise
            log.exception("request for %r failed", request.path)
            return _problem(request, 500, "", prefix)

    app.middlewares.append(answer)
    app.on_response_prepare.append(begin)


def _refuse(request: web.Request) -> None:
    if request.method not in _METHODS:
        raise web.HTTPMethodNotAllowed(request.method, _METHODS)
    if request.body_exists:
        raise web.HTTPRequestEntityTooLarge(max_size=0, actual_size=request.content_length or 0, text="")


def _problem(
    request: web.Request, status: int, text: str, prefix: str, headers: Mapping[str, str] | None = None
) -> web.Response:
    sentence = (text or _SENTENCES.get(status, "")).strip()
    if prefers_html(request):
        path = request.rel_url.raw_path
        below = path.removeprefix(prefix) if path.startswith(f"{prefix}/") else path
        root = "../" * max(below.count("/") - 1, 0)
        body, content_type = error_page(status, HTTPStatus(status).phrase, sentence, root), "text/html"
    elif media_quality(request.headers.get("Accept", ""), "application/json"):
        body, content_type = json.dumps({"error": sentence}), "application/json"
    else:
        body, content_type = f"{sentence}\n", "text/plain"
    all_headers = {"Cache-Control": "no-cache", "Vary": "Accept", **(headers or {})}
    response = web.Response(status=status, text=body, content_type=content_type, headers=all_headers)
    if request.body_exists:
        response.force_close()
    return response
