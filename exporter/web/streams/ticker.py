"""Wakes those who wait for the next snapshot."""

import asyncio


class Ticker:
    """Counts the snapshots that are published; whoever waits compares with the last that it has seen."""

    def __init__(self) -> None:
        self.count = 0
        self._bell = asyncio.Event()

    def tick(self, _news: object = None) -> None:
        """Take note of something new, on the event loop."""
        self.count += 1
        bell, self._bell = self._bell, asyncio.Event()
        bell.set()

    async def after(self, count: int) -> int:
        """Wait until there are more than ``count``, and return how many."""
        while self.count <= count:
            await self._bell.wait()
        return self.count
