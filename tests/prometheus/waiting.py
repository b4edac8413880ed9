"""Waiting for what another program does."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from tests.end_to_end.programs import PATIENCE

Found = TypeVar("Found")


async def eventually(question: Callable[[], Awaitable[Found | None]], what: str) -> Found:
    """Ask until there is an answer; fail after PATIENCE seconds."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if answer := await question():
            return answer
        await asyncio.sleep(0.1)
    pytest.fail(f"after {PATIENCE:.0f} s still not: {what}")
