"""What is refused, and how every refusal and failure is told.

Browsers get a small page, who names JSON gets ``{"error": …}``, and all others a line of text.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextvars import ContextVar
from http import HTTPStatus
from typing import Any

from aiohttp import web
from multidict import MultiMapping

from exporter.exposition.negotiation import media_quality
from exporter.web.html import error_page

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_METHODS = ("GET", "HEAD")
_SENTENCES = {
    404: "There is no such page.",
    405: "Only GET and HEAD are answered: nothing can be changed here.",
    413: "A request with a body is not answered.",
    500: "This could not be made. The exporter's log says why.",
}
_OF_CONTENT = frozenset({"Content-Type", "Content-Length"})
# Whether the answer of the request of this task has begun, so that no other can be given.
_begun = ContextVar("begun", default=False)


def prefers_html(request: web.Request) -> bool:
    """Tell whether the client names HTML, as browsers do, and wants it no less than plain text."""
    accept = request.headers.get("Accept", "")
    html = media_quality(accept, "text/html")
    return html > 0 and html >= media_quality(accept, "text/plain")


def answer_errors(app: web.Application, prefix: str = "") -> None:
    """Have an application refuse what it must, and answer with words of ours whatever goes wrong.

    ``prefix`` is the path below which it is served too.
    """
    app.middlewares.append(_middleware(prefix))
    app.on_response_prepare.append(_begin)


async def _begin(_request: web.Request, _response: web.StreamResponse) -> None:
    _begun.set(True)


def _middleware(prefix: str) -> Any:
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
            # The client has gone.
            raise
        except Exception:
            if _begun.get():
                raise
            log.exception("request for %r failed", request.path)
            return _problem(request, 500, "", prefix)

    return answer


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
        root = "../" * _depth(request.rel_url.raw_path, prefix)
        body, content_type = error_page(status, HTTPStatus(status).phrase, sentence, root), "text/html"
    elif media_quality(request.headers.get("Accept", ""), "application/json"):
        body, content_type = json.dumps({"error": sentence}), "application/json"
    else:
        body, content_type = f"{sentence}\n", "text/plain"
    said = {"Cache-Control": "no-cache", "Vary": "Accept", **(headers or {})}
    response = web.Response(status=status, text=body, content_type=content_type, headers=said)
    if request.body_exists:
        response.force_close()
    return response


def _depth(path: str, prefix: str) -> int:
    """Count the folders between a path and the page of the node."""
    below = path.removeprefix(prefix) if path.startswith(f"{prefix}/") else path
    return max(below.count("/") - 1, 0)


def given_once(parameters: MultiMapping[str], name: str) -> str | None:
    """Return the value of a parameter, None if it is absent; raises HTTPBadRequest if it is repeated."""
    values = parameters.getall(name, [])
    if len(values) > 1:
        raise web.HTTPBadRequest(text=f"The {name} must be given once.")
    return values[0] if values else None


def one_of(parameters: MultiMapping[str], name: str, options: Collection[str]) -> str | None:
    """Return which option a parameter names, None if it is absent.

    Raises HTTPBadRequest if the value is empty, repeated or not an option.
    """
    values = parameters.getall(name, [])
    if values and (len(values) > 1 or values[0] not in options):
        once = ", given once" if len(values) > 1 else ""
        raise web.HTTPBadRequest(text=f"The {name} must be one of {', '.join(options)}{once}.")
    return values[0] if values else None


def short_text(parameters: MultiMapping[str], name: str, longest: int) -> str | None:
    """Return a text of 1 to ``longest`` characters, None if it is absent; else raises HTTPBadRequest."""
    text = given_once(parameters, name)
    if text is not None and not 1 <= len(text) <= longest:
        raise web.HTTPBadRequest(text=f"The {name} must have 1 to {longest} characters.")
    return text
