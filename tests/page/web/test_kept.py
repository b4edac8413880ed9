"""Bodies cached for a moment: made once, limited in number and size, and none that failed."""

import asyncio
import tracemalloc

import pytest
from aiohttp import web

from exporter.web.kit import render_queue
from exporter.web.kit.render_queue import AT_ONCE, MOST_WAITING, BodyCache
from tests.waiting import wait_until_async


async def test_simultaneous_requests_share_one_answer() -> None:
    """And make another once it is too old."""
    made = []

    async def make() -> bytes:
        await asyncio.sleep(0)
        made.append(1)
        return b"body"

    async def made_again() -> bool:
        await things.get("key", 0.05, make)
        return len(made) == 2

    things = BodyCache()
    assert await asyncio.gather(*(things.get("key", 0.05, make) for _ in range(5))) == [b"body"] * 5
    assert len(made) == 1
    await wait_until_async(made_again)


async def test_a_failure_is_tried_again() -> None:
    async def fail() -> bytes:
        raise ValueError("no")

    async def make() -> bytes:
        return b"body"

    things = BodyCache()
    errors = await asyncio.gather(*(things.get("key", 60, fail) for _ in range(2)), return_exceptions=True)
    assert [str(each) for each in errors] == ["no", "no"]
    assert await things.get("key", 60, make) == b"body"


@pytest.mark.parametrize("size", [10, render_queue.MOST_BYTES // 4])
async def test_bodies_are_limited_in_number_and_size(size) -> None:
    made = []

    def maker(key):
        async def make() -> bytes:
            made.append(key)
            return bytes(size)

        return make

    things = BodyCache()
    for key in range(render_queue.MOST_THINGS + 6):
        await things.get(key, 6000, maker(key))
    newest = render_queue.MOST_THINGS + 5
    await things.get(newest, 60, maker(newest))
    assert made.count(newest) == 1
    await things.get(0, 60, maker(0))
    assert made.count(0) == 2


async def test_dropped_bodies_are_freed_at_once() -> None:
    size = render_queue.MOST_BYTES // 4

    async def make() -> bytes:
        return bytes(size)

    things = BodyCache()
    tracemalloc.start()
    try:
        for key in range(20):
            await things.get(key, 6000, make)
        assert tracemalloc.get_traced_memory()[0] < render_queue.MOST_BYTES + size
    finally:
        tracemalloc.stop()


async def test_few_bodies_are_made_at_once() -> None:
    running, most = 0, 0

    async def make() -> bytes:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return b""

    things = BodyCache()
    await asyncio.gather(*(things.get(key, 6000, make) for key in range(10)))
    assert most == AT_ONCE


async def test_waiting_requests_are_limited() -> None:
    """Ready bodies are still returned."""
    go = asyncio.Event()

    async def make() -> bytes:
        await go.wait()
        return b"body"

    async def made() -> bytes:
        return b"old"

    things = BodyCache()
    assert await things.get("old", 60, made) == b"old"
    waiting = [asyncio.ensure_future(things.get(key, 6000, make)) for key in range(MOST_WAITING)]
    await asyncio.sleep(0)
    more = [asyncio.ensure_future(things.get(("more", key), 60, make)) for key in range(MOST_WAITING)]
    await wait_until_async(lambda: sum(each.done() for each in more) >= MOST_WAITING - AT_ONCE)
    assert await things.get("old", 60, made) == b"old"
    go.set()
    assert set(await asyncio.gather(*waiting)) == {b"body"}
    refused = await asyncio.gather(*more, return_exceptions=True)
    assert sum(isinstance(each, web.HTTPServiceUnavailable) for each in refused) >= MOST_WAITING - AT_ONCE


async def test_a_body_without_waiting_clients_is_not_begun() -> None:
    go, begun = asyncio.Event(), []

    def maker(key):
        async def make() -> bytes:
            begun.append(key)
            await go.wait()
            return b"body"

        return make

    things = BodyCache()
    running = [asyncio.ensure_future(things.get(key, 6000, maker(key))) for key in range(AT_ONCE)]
    left = [
        asyncio.ensure_future(things.get(key, 6000, maker(key))) for key in ("left", "left", "asked again")
    ]
    await wait_until_async(lambda: len(begun) == AT_ONCE)
    for request in left:
        request.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    again = asyncio.ensure_future(things.get("asked again", 60, maker("asked again")))
    go.set()
    assert await asyncio.gather(*running, again) == [b"body"] * (AT_ONCE + 1)
    assert begun == [*range(AT_ONCE), "asked again"]
