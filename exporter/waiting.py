"""Waiting for an event for a while, by who may be cancelled at any moment."""

import asyncio


async def occurs(event: asyncio.Event, seconds: float) -> bool:
    """Wait so long for an event; return whether it is set.

    ``asyncio.wait_for`` of Python 3.11 loses a cancellation that comes while the event is being set: who
    waits by it goes on for ever, and with it the program that was told to end.
    """
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({waiting}, timeout=seconds)
    finally:
        waiting.cancel()
    return event.is_set()
