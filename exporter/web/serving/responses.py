"""Answers with a body: compressed for clients that take it, and empty for those that have it already."""

import asyncio
import gzip
import hashlib
from collections import OrderedDict
from collections.abc import Mapping

from aiohttp import web

from exporter.exposition import accepts_gzip
from exporter.threads import in_thread

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
