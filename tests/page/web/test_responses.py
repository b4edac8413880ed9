"""Compressed bodies: each is compressed once for all clients."""

import asyncio
import gzip
import os
from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientSession, web

from exporter.config import ListenAddress
from exporter.web.kit.application import build_app
from exporter.web.kit.http.responses import (
    KEPT,
    WORTH_ZIPPING,
    ZIPPED_AT_ONCE,
    Zipper,
    compress,
    digest,
    reply,
)
from exporter.web.kit.http.server import Server

SIZES = (1, WORTH_ZIPPING - 1, WORTH_ZIPPING, ZIPPED_AT_ONCE, ZIPPED_AT_ONCE + 1, 2_000_000)


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """Serve bodies of the sizes that their paths say."""

    async def body(request: web.Request) -> web.Response:
        return await reply(request, b"x" * int(request.match_info["size"]), "text/plain; charset=utf-8")

    server = Server(build_app([web.get("/{size}", body)]), ListenAddress("127.0.0.1", 0))
    yield await server.start()
    await server.stop()


@pytest.mark.parametrize("size", [ZIPPED_AT_ONCE // 2, ZIPPED_AT_ONCE * 20])
async def test_a_body_is_compressed_once(size: int) -> None:
    zipper, body = Zipper(), os.urandom(size)
    tag = digest(body)
    first = await asyncio.gather(*(zipper.zipped(tag, body) for _ in range(5)))
    later = await zipper.zipped(tag, body)

    assert gzip.decompress(later) == body
    assert all(each is later for each in first)


async def test_only_the_newest_bodies_are_kept() -> None:
    zipper = Zipper()
    oldest = await zipper.zipped("oldest", b"body")
    for number in range(KEPT):
        await zipper.zipped(f"{number}", b"body")

    assert await zipper.zipped("oldest", b"body") is not oldest


async def test_a_cancelled_reader_leaves_the_body_to_others() -> None:
    zipper, body = Zipper(), os.urandom(1_000_000)
    leaving = asyncio.ensure_future(zipper.zipped("tag", body))
    staying = asyncio.ensure_future(zipper.zipped("tag", body))
    await asyncio.sleep(0)
    leaving.cancel()

    assert gzip.decompress(await staying) == body


async def test_a_failed_compression_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    zipper, body = Zipper(), os.urandom(ZIPPED_AT_ONCE + 1)

    async def no_thread(*_: object) -> bytes:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr("exporter.web.kit.http.responses.in_thread", no_thread)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            await zipper.zipped("tag", body)

    assert gzip.decompress(await zipper.zipped("tag", body)) == body


def test_the_same_body_gives_the_same_bytes() -> None:
    body = os.urandom(1000)
    assert compress(body) == compress(body)
    assert digest(body) != digest(body + b"x")


@pytest.mark.parametrize("size", SIZES)
async def test_get_sends_the_length_that_head_announces(url: str, size: int) -> None:
    headers = {"Accept-Encoding": "gzip"}
    async with ClientSession(auto_decompress=False) as client:
        async with client.get(f"{url}{size}", headers=headers) as got:
            body = await got.read()
        async with client.head(f"{url}{size}", headers=headers) as head:
            assert await head.read() == b""
    zipped = got.headers.get("Content-Encoding") == "gzip"

    assert zipped == (size >= WORTH_ZIPPING)
    assert (gzip.decompress(body) if zipped else body) == b"x" * size
    for name in ("Content-Length", "ETag", "Vary", "Content-Type"):
        assert head.headers[name] == got.headers[name]
    assert head.headers["Content-Length"] == str(len(body))
