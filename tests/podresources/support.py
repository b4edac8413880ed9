"""Types shared by the tests of the kubelet's clients."""

from collections.abc import Awaitable, Callable
from pathlib import Path

RawServer = Callable[[Path, str, bytes], Awaitable[None]]  # socket, method, answer
ByteServer = Callable[[Path, bytes], Awaitable[bytearray]]  # socket, greeting → what clients say


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Give the time in seconds."""
        return self.now
