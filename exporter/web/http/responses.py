"""Answers with a body: compressed for clients that take it, and empty for those that have it already."""

import asyncio
import gzip
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aiohttp import Payload, web
from aiohttp.abc import AbstractStreamWriter

from exporter.concurrency import in_thread
from exporter.exposition.page import accepts_gzip

# Below this a body fits into one packet anyway.
WORTH_ZIPPING = 1024
# Up to this, compressing takes less than handing it to a thread is worth: some 0.5 ms.
ZIPPED_AT_ONCE = 16 * 1024
KEPT = 32
# What a 304 must not say again: it has no content.
_OF_CONTENT = frozenset({"Content-Type", "Content-Encoding", "Content-Disposition"})


class Zipper:
    """Compresses bodies, each of them once, and keeps the newest; large ones are compressed in a thread."""

    def __init__(self) -> None:
        self._made: OrderedDict[str, asyncio.Task[bytes]] = OrderedDict()

    async def zipped(self, tag: str, body: bytes) -> bytes:
        """Give the body that goes by this tag, compressed."""
        task = self._made.get(tag)
        if task is None:
            while len(self._made) >= KEPT:
                self._made.popitem(last=False)
            task = self._made[tag] = asyncio.ensure_future(_zip(body))
            task.add_done_callback(lambda done: self._forget_failed(tag, done))
        # One reader that goes away must not take the body from the others.
        return await asyncio.shield(task)

    def _forget_failed(self, tag: str, task: "asyncio.Task[bytes]") -> None:
        """Have what could not be compressed tried again by the next who asks."""
        failed = task.cancelled() or task.exception() is not None
        if failed and self._made.get(tag) is task:
            del self._made[tag]


ZIPPER = web.AppKey("ZIPPER", Zipper)


async def _zip(body: bytes) -> bytes:
    return compress(body) if len(body) <= ZIPPED_AT_ONCE else await in_thread(compress, body)


def compress(body: bytes) -> bytes:
    """Compress with gzip; the same body always gives the same bytes.

    Beyond level 8 hardly anything is won, and a large page is a twentieth smaller than at the usual 6.
    """
    return gzip.compress(body, compresslevel=8, mtime=0)


def digest(body: bytes) -> str:
    """Name a body by what it holds: 24 hexadecimal digits."""
    return hashlib.blake2b(body, digest_size=12).hexdigest()


async def reply(  # noqa: PLR0913 - by keyword: what may differ from answer to answer
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
    """Answer with this body, or with 304 where the client says that it has it.

    ``content_type`` is the whole header, charset included. ``zipped`` is the body compressed, where the
    caller keeps that. ``tag`` names the body for the ETag and must be that of no other; by default it is its
    digest. Headers tell the encodings apart, and HEAD has those of GET.
    """
    tag = tag or digest(body)
    worth = zipped is not None or len(body) >= WORTH_ZIPPING
    zipping = worth and accepts_gzip(request.headers.get("Accept-Encoding", ""))
    entity = f"{tag}-gzip" if zipping else tag
    said = {
        "Content-Type": content_type,
        "Cache-Control": cache,
        "ETag": f'"{entity}"',
        "Vary": vary,
        **(headers or {}),
    }
    if _has(request, entity):
        kept = {name: value for name, value in said.items() if name not in _OF_CONTENT}
        return web.Response(status=304, headers=kept)
    if zipping:
        said["Content-Encoding"] = "gzip"
        body = await request.config_dict[ZIPPER].zipped(tag, body) if zipped is None else zipped
    return web.Response(body=body, headers=said)


def _has(request: web.Request, entity: str) -> bool:
    """Tell by If-None-Match whether the client has this entity (compared weakly: RFC 9110, 13.1.2)."""
    return any(known.value in (entity, "*") for known in request.if_none_match or ())


PORTION = 32 * 1024
"""More than this is never handed to a connection before the client has taken what was before, in bytes."""
ROOM = 96 * 1024
"""As much may be handed to one of the first connections at once: a page of metrics as a rule, compressed."""


class Portions(Payload):
    """A body of bytes, which all its readers share."""

    def __init__(self, body: bytes) -> None:
        super().__init__(body)

    @property
    def size(self) -> int:
        """Its length."""
        return len(self._value)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Give it as text."""
        return bytes(self._value).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> Any:
        """Write it, each portion once the client has taken those before."""
        for start in range(0, len(self._value), PORTION):
            await writer.write(self._value[start : start + PORTION])
            await writer.drain()


class FilePortions(Payload):
    """The body of a file of ``size`` bytes, which nobody keeps; it is read in a thread."""

    def __init__(self, path: Path, size: int) -> None:
        super().__init__(path)
        self._size = size

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Give it as text."""
        return Path(self._value).read_text(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> Any:
        """Write it, each portion once the client has taken those before."""
        file = await in_thread(Path(self._value).open, "rb")
        try:
            while part := await in_thread(file.read, PORTION):
                await writer.write(part)
                await writer.drain()
        finally:
            file.close()


def portioned(response: web.StreamResponse, room: int = PORTION) -> None:
    """Have the body of an answer handed over in portions, where it is more than there is room for."""
    if isinstance(response, web.Response) and isinstance(response.body, bytes) and len(response.body) > room:
        response.body = Portions(response.body)


# Plotly adds a style element that is empty; this is the hash of nothing.
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
    """Make the headers of every answer; ``frame_ancestors`` are ``self`` and origins that may frame it."""
    ancestors = ["'self'" if origin == "self" else origin for origin in frame_ancestors] or ["'none'"]
    policy = _POLICY | {"frame-ancestors": " ".join(ancestors)}
    headers = {
        "Content-Security-Policy": "; ".join(f"{name} {sources}" for name, sources in policy.items()),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Permissions-Policy": ", ".join(f"{name}=()" for name in _UNUSED),
        # Which versions of what answer here is told to nobody who does not ask /metrics.
        "Server": "gpuslice-exporter",
    }
    # The older header knows no list of origins; where there is one, browsers go by the policy.
    if not frame_ancestors:
        headers["X-Frame-Options"] = "DENY"
    elif set(frame_ancestors) == {"self"}:
        headers["X-Frame-Options"] = "SAMEORIGIN"
    return headers


Headers = Callable[[], Mapping[str, str]]
_SAID = web.AppKey("_SAID", list[Headers])


def secure(app: web.Application, frame_ancestors: Sequence[str] = ()) -> None:
    """Put the headers on every answer of an application, just before it is sent: on streams too."""
    ours = security_headers(frame_ancestors)
    app[_SAID] = [lambda: ours]

    async def add(request: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(headers_of(app))
        # Browsers heed this only over HTTPS and from their own machine, and complain about it elsewhere;
        # where they heed it they also say how they fetch.
        if "Sec-Fetch-Mode" in request.headers:
            response.headers["Cross-Origin-Opener-Policy"] = "same-origin"

    app.on_response_prepare.append(add)


def say_also(app: web.Application, headers: Headers) -> None:
    """Put further headers on every answer of an application that is secured, in place of those before."""
    app[_SAID].append(headers)


def headers_of(app: web.Application) -> Mapping[str, str]:
    """Give what every answer of an application says now."""
    first, *others = app.get(_SAID) or (dict,)
    if not others:
        return first()
    return {name: value for headers in (first, *others) for name, value in headers().items()}
