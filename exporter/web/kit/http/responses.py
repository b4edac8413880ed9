"""Responses: compressed if the client accepts it, 304 if it has the body, and security headers."""

import gzip
import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from aiohttp import web

from exporter.concurrency import in_thread
from exporter.exposition.negotiation import accepts_gzip
from exporter.web.kit.render_queue import TaskCache

CONTENT_TYPES = {
    "json": "application/json; charset=utf-8",
    "csv": "text/csv; charset=utf-8",
    "text": "text/plain; charset=utf-8",
}
"""The formats of a snapshot, and their content types."""
ADVICE_TYPES = {name: CONTENT_TYPES[name] for name in ("json", "csv")}
"""The formats of advice, and their content types."""
# Bytes. A smaller body fits into one packet uncompressed.
WORTH_ZIPPING = 1024
# Bytes. A body up to this size is compressed on the event loop, which takes about 0.5 ms.
ZIPPED_AT_ONCE = 16 * 1024
KEPT = 32
# Headers that a 304 must not have, because it has no content.
_OF_CONTENT = frozenset({"Content-Type", "Content-Encoding", "Content-Disposition"})


class Zipper:
    """Compresses each body once, and keeps the newest; large ones are compressed in a thread."""

    def __init__(self) -> None:
        self._made = TaskCache(KEPT)

    async def zipped(self, tag: str, body: bytes) -> bytes:
        """Return a body compressed; ``tag`` identifies it."""
        return await self._made.start(tag, partial(_zip, body)).wait()


ZIPPER = web.AppKey("ZIPPER", Zipper)


async def _zip(body: bytes) -> bytes:
    return compress(body) if len(body) <= ZIPPED_AT_ONCE else await in_thread(compress, body)


def compress(body: bytes) -> bytes:
    """Return a body compressed with gzip; equal bodies give equal bytes.

    Level 8 makes a large page 5 % smaller than the default 6; level 9 gains almost nothing more.
    """
    return gzip.compress(body, compresslevel=8, mtime=0)


def digest(body: bytes) -> str:
    """Return a hash of a body: 24 hexadecimal digits."""
    return hashlib.blake2b(body, digest_size=12).hexdigest()


async def reply(  # noqa: PLR0913 - by keyword: what differs between responses
    request: web.Request,
    body: bytes,
    content_type: str,
    *,
    zipped: bytes | None = None,
    tag: str = "",
    cache: str = "no-cache",
    vary: str = "Accept-Encoding",
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """Return the response with this body, or 304 if the client has it already.

    ``content_type`` is the whole header with its charset. ``zipped`` is the compressed body, if the caller
    keeps it. ``tag`` identifies the body in the ETag; by default it is its digest. Each encoding has its own
    ETag.
    """
    tag = tag or digest(body)
    worth = zipped is not None or len(body) >= WORTH_ZIPPING
    zipping = worth and accepts_gzip(request.headers.get("Accept-Encoding", ""))
    entity = f"{tag}-gzip" if zipping else tag
    all_headers = {
        "Content-Type": content_type,
        "Cache-Control": cache,
        "ETag": f'"{entity}"',
        "Vary": vary,
        **(headers or {}),
    }
    # Compared weakly: RFC 9110, 13.1.2.
    if any(known.value in (entity, "*") for known in request.if_none_match or ()):
        without_content = {name: value for name, value in all_headers.items() if name not in _OF_CONTENT}
        return web.Response(status=304, headers=without_content)
    if zipping:
        all_headers["Content-Encoding"] = "gzip"
        body = await request.config_dict[ZIPPER].zipped(tag, body) if zipped is None else zipped
    return web.Response(body=body, headers=all_headers)


# Plotly adds an empty style element; this is the hash of empty content.
_EMPTY = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
_POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": f"'self' {_EMPTY}",
    "img-src": "'self' data: blob:",
    "connect-src": "'self'",
    "font-src": "'self'",
    "manifest-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'self'",
}
_UNUSED = ("camera", "display-capture", "geolocation", "microphone", "payment", "usb")


def security_headers(frame_ancestors: Sequence[str] = ()) -> Mapping[str, str]:
    """Return the headers of every response; ``frame_ancestors`` (origins or ``self``) may frame it."""
    ancestors = ["'self'" if origin == "self" else origin for origin in frame_ancestors] or ["'none'"]
    policy = _POLICY | {"frame-ancestors": " ".join(ancestors)}
    headers = {
        "Content-Security-Policy": "; ".join(f"{name} {sources}" for name, sources in policy.items()),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Permissions-Policy": ", ".join(f"{name}=()" for name in _UNUSED),
        # Without versions: only /metrics has these.
        "Server": "gpuslice-exporter",
    }
    # The older header has no list of origins; with such a list browsers use the policy.
    if not frame_ancestors:
        headers["X-Frame-Options"] = "DENY"
    elif set(frame_ancestors) == {"self"}:
        headers["X-Frame-Options"] = "SAMEORIGIN"
    return headers


Headers = Callable[[], Mapping[str, str]]
_HEADERS = web.AppKey("_HEADERS", list[Headers])


def secure(app: web.Application, frame_ancestors: Sequence[str] = ()) -> None:
    """Add the headers to every response of an application just before it is sent, including streams."""
    ours = security_headers(frame_ancestors)
    app[_HEADERS] = [lambda: ours]

    async def add(request: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(headers_of(app))
        # Browsers accept this over HTTPS and from localhost only, and log a warning otherwise. They send
        # Sec-Fetch-Mode under the same conditions.
        if "Sec-Fetch-Mode" in request.headers:
            response.headers["Cross-Origin-Opener-Policy"] = "same-origin"

    app.on_response_prepare.append(add)


def add_headers(app: web.Application, headers: Headers) -> None:
    """Add further headers to every response of a secured application; they replace previous ones."""
    app[_HEADERS].append(headers)


def headers_of(app: web.Application) -> Mapping[str, str]:
    """Return the current headers of every response of an application."""
    return {name: value for headers in app.get(_HEADERS, ()) for name, value in headers().items()}
