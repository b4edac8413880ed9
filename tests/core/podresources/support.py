"""Types shared by the tests of the kubelet's clients."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from exporter.demo.fake_kubelet import FakeKubelet

RawServer = Callable[[Path, str, bytes], Awaitable[None]]  # socket, method, answer
ByteServer = Callable[[Path, bytes], Awaitable[bytearray]]  # socket, greeting → bytes received


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self.now


@contextmanager
def answers_wait(kubelet: FakeKubelet) -> Iterator[None]:
    """Let calls wait for the end of the block."""
    over, real = asyncio.Event(), kubelet._misbehave

    async def wait(_method: str, _context: object) -> None:
        await over.wait()

    kubelet._misbehave = wait
    try:
        yield
    finally:
        kubelet._misbehave = real
        over.set()
