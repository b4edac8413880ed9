"""Waiting for an event in a test. Only a hang reaches the limit, never a busy machine."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

LIMIT_SECONDS = 120.0
PAUSE_SECONDS = 0.02
Found = TypeVar("Found")


def wait_until(question: Callable[[], Found | None], what: str = "") -> Found:
    """Ask until the answer is true, and return it; fail the test after LIMIT_SECONDS."""
    end = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < end:
        if answer := question():
            return answer
        time.sleep(PAUSE_SECONDS)
    return _too_late(question, what)


async def wait_until_async(
    question: Callable[[], Found | None] | Callable[[], Awaitable[Found | None]], what: str = ""
) -> Found:
    """Ask as ``wait_until`` does, and let the event loop run between questions, which may be coroutines."""
    end = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < end:
        answer = question()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return answer
        await asyncio.sleep(PAUSE_SECONDS)
    return _too_late(question, what)


def _too_late(question: Callable[[], object], what: str) -> Found:
    pytest.fail(f"after {LIMIT_SECONDS:.0f} s still not: {what or inspect.getsource(question).strip()}")
