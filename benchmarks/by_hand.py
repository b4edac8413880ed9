"""The program with a poller that polls when it is told to."""

import asyncio
import json
import sys
import time
from functools import partial
from typing import Any

import exporter.commands.serve as program
from benchmarks.subject import POLL_SECONDS, Lazy, say
from exporter.config.settings import Settings
from exporter.model import Snapshot
from exporter.poll.poller import Poller
from exporter.poll.sources import Sources


class Hand:
    """The time of the node, which begins at ``start`` (Unix time) and is moved by ``advance``."""

    def __init__(self, start: float) -> None:
        self.seconds = 0.0
        self._start = start

    def wall(self) -> float:
        """Give the Unix time."""
        return self._start + self.seconds

    def clock(self) -> float:
        """Give the seconds since the start."""
        return self.seconds

    def advance(self) -> None:
        """Let the time between two polls pass."""
        self.seconds += POLL_SECONDS


class Bench:
    """The program's poller, and the node around it, which moves on before each poll."""

    def __init__(self, poller: Poller, library: Lazy, hand: Hand) -> None:
        self.poller = poller
        self._library = library
        self._hand = hand

    async def poll(self) -> tuple[Snapshot, float]:
        """Let the time of a poll come, and poll; return the seconds of a processor that it took too."""
        self._hand.advance()
        if self._library.driver is not None:
            self._library.driver.move(self._hand.seconds)
        start = time.process_time()
        snapshot = await self.poller.poll()
        return snapshot, time.process_time() - start

    async def answer(self, do: str, times: int = 0) -> dict[str, Any]:
        """Do what a request says; what ``parts`` can do is told there."""
        if do == "usage":
            return self._library.usage()
        if do == "poll":
            return {"poll": [(await self.poll())[1] for _ in range(times)]}
        # The program without this is what has its memory measured.
        from benchmarks.parts import PARTS  # noqa: PLC0415 - as said above

        return await PARTS[do](self, times)


def take_over(library: Lazy, hand: Hand) -> None:
    """Have the program poll by hand from now on."""

    class ByHand(Poller):
        def __init__(self, settings: Settings, sources: Sources, **options: Any) -> None:
            super().__init__(settings, sources, clock=hand.clock, wall=hand.wall, **options)

        async def run(self) -> None:
            bench = Bench(self, library, hand)
            say(library.usage())
            while line := await asyncio.to_thread(sys.stdin.readline):
                say(await bench.answer(**json.loads(line)))

    # The names that serve() makes its poller and its sources by.
    vars(program).update(Poller=ByHand, Sources=partial(Sources, clock=hand.clock))
