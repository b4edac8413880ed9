"""The program with a poller that polls on request."""

import asyncio
import json
import sys
import time
from functools import partial
from typing import Any

import exporter.commands.serve as program
from benchmarks.subject import POLL_SECONDS, LazyDriver, say
from exporter.config import Settings
from exporter.model import Snapshot
from exporter.poll.poller import Poller
from exporter.poll.sources import Sources


class Bench:
    """The program's poller, and the node around it, which moves on before each poll."""

    def __init__(self, node: str, start: float) -> None:
        self.poller: Poller
        self.seconds = 0.0  # the node's time since its start
        self.driver = LazyDriver(node, self.wall)
        self._start = start

    def clock(self) -> float:
        """Return the seconds since the start of the node."""
        return self.seconds

    def wall(self) -> float:
        """Return the node's Unix time."""
        return self._start + self.seconds

    async def poll(self) -> tuple[Snapshot, float]:
        """Let the time between two polls pass, and poll; return the CPU seconds of the poll too."""
        self.seconds += POLL_SECONDS
        self.driver.move(self.seconds)
        start = time.process_time()
        snapshot = await self.poller.poll()
        return snapshot, time.process_time() - start

    async def answer(self, do: str, times: int = 0) -> Any:
        """Answer a request: ``usage``, ``poll``, or one of ``parts.PARTS``."""
        if do == "usage":
            return self.driver.usage()
        if do == "poll":
            return [(await self.poll())[1] for _ in range(times)]
        from benchmarks.parts import PARTS  # noqa: PLC0415 - not in a process whose memory is measured

        return await PARTS[do](self, times)


def take_over(node: str, start: float) -> LazyDriver:
    """Have the program poll by hand from now on; the node's clock begins at ``start``, a Unix time."""
    bench = Bench(node, start)

    class ByHand(Poller):
        def __init__(self, settings: Settings, sources: Sources, *, demo: bool = False) -> None:
            super().__init__(settings, sources, demo=demo, clock=bench.clock, wall=bench.wall)
            bench.poller = self

        async def run(self) -> None:
            say(bench.driver.usage())
            while line := await asyncio.to_thread(sys.stdin.readline):
                say(await bench.answer(**json.loads(line)))

    # The names by which serve() makes its poller and its sources.
    vars(program).update(Poller=ByHand, Sources=partial(Sources, clock=bench.clock))
    return bench.driver
