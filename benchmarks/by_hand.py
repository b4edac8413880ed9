"""The program with a poller that polls on request."""

import asyncio
import json
import sys
from functools import partial
from typing import Any

import exporter.commands.serve as program
from benchmarks.bench import Bench, LazyDriver, say
from exporter.config import Settings
from exporter.poll.poller import Poller
from exporter.poll.sources import Sources


async def _answer(bench: Bench, do: str, times: int = 0) -> Any:
    """Answer a request: ``usage``, ``poll``, or one of ``parts.PARTS``."""
    if do == "usage":
        return bench.driver.usage()
    if do == "poll":
        return [(await bench.poll())[1] for _ in range(times)]
    from benchmarks.parts import PARTS  # noqa: PLC0415 - not in a process whose memory is measured

    return await PARTS[do](bench, times)


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
                say(await _answer(bench, **json.loads(line)))

    # The names by which serve() makes its poller and its sources.
    vars(program).update(Poller=ByHand, Sources=partial(Sources, clock=bench.clock))
    return bench.driver
