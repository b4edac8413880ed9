"""Waiting for an event, up to a time (``exporter.concurrency.wait_for``)."""

import asyncio

import pytest

from exporter.concurrency import wait_for
from tests.waiting import LIMIT_SECONDS

HOURS = 36_000.0


async def test_an_event_ends_the_wait():
    event = asyncio.Event()
    asyncio.get_running_loop().call_soon(event.set)
    assert await wait_for(event, HOURS)


async def test_a_wait_that_times_out_leaves_no_task():
    tasks = asyncio.all_tasks()
    assert not await wait_for(asyncio.Event(), 0.01)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == tasks


async def test_another_future_ends_the_wait_and_is_never_cancelled():
    event, other = asyncio.Event(), asyncio.get_running_loop().create_future()
    assert not await wait_for(event, 0.01, other)
    assert not other.done()
    other.set_result(None)
    assert not await wait_for(event, HOURS, other)
    event.set()
    assert await wait_for(event, HOURS, other)


@pytest.mark.parametrize("steps", range(6))
@pytest.mark.parametrize("order", [("set", "cancel"), ("cancel", "set")])
async def test_a_cancellation_while_the_event_is_set_is_not_lost(order: tuple[str, str], steps: int):
    """However many steps of the loop lie between the two."""
    event = asyncio.Event()

    async def forever() -> None:
        while True:
            await wait_for(event, HOURS)
            event.clear()

    task = asyncio.create_task(forever())
    for _ in range(3):
        await asyncio.sleep(0)
    actions = {"set": event.set, "cancel": task.cancel}
    actions[order[0]]()
    for _ in range(steps):
        await asyncio.sleep(0)
    actions[order[1]]()
    await asyncio.wait({task}, timeout=LIMIT_SECONDS)
    assert task.cancelled()
