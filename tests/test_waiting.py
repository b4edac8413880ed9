"""Waiting for an event for a while."""

import asyncio
import time

import pytest

from exporter.concurrency import wait_for


async def test_an_event_that_occurs_is_told_at_once():
    """The rest of the time is not waited for."""
    event = asyncio.Event()
    asyncio.get_running_loop().call_later(0.01, event.set)
    began = time.monotonic()
    assert await wait_for(event, 30)
    assert time.monotonic() - began < 10


async def test_an_event_that_does_not_occur_is_not_waited_for_any_more():
    """Nothing is left waiting behind."""
    tasks = asyncio.all_tasks()
    assert not await wait_for(asyncio.Event(), 0.01)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == tasks


async def test_another_future_ends_the_wait_too():
    """It is left as it is, whichever comes first."""
    event, other = asyncio.Event(), asyncio.get_running_loop().create_future()
    assert not await wait_for(event, 0.01, other)
    assert not other.done()
    other.set_result(None)
    assert not await wait_for(event, 30, other)
    event.set()
    assert await wait_for(event, 30, other)


@pytest.mark.parametrize("steps", range(6))
async def test_who_is_cancelled_while_the_event_is_set_ends(steps: int):
    """Whichever of the two comes first, and however many turns of the loop lie between them."""
    for first in ("set", "cancel"):
        event = asyncio.Event()

        async def forever(event: asyncio.Event = event) -> None:
            while True:
                await wait_for(event, 30)
                event.clear()

        task = asyncio.create_task(forever())
        for _ in range(3):
            await asyncio.sleep(0)
        doing = {"set": event.set, "cancel": task.cancel}
        doing.pop(first)()
        for _ in range(steps):
            await asyncio.sleep(0)
        (second,) = doing.values()
        second()
        await asyncio.wait({task}, timeout=5)
        assert task.cancelled()
