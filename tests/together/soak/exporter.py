"""The process that is measured: the real program, which polls on request.

Run as ``python -m tests.together.soak.exporter``. The fake driver is in it, and keeps the same at each poll.
Reads one JSON object a line and answers each with one: ``{"poll": 7}`` with the CPU seconds that it took so
far, ``{"probe": true}`` with the findings of ``tests.together.soak.probe``.
"""

# ruff: noqa: E402 - the clock has to be there first
from tests.together.soak import clock

clock.install()

import asyncio
import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from exporter.commands import serve as serving
from exporter.commands.node import Node
from exporter.config import Settings, load_settings
from exporter.demo import machine
from exporter.demo.nvml import FakeNvml
from exporter.demo.present import present
from exporter.nvml import events
from exporter.poll.budget import Budget
from exporter.poll.poller import Poller
from exporter.poll.sources import Sources
from tests.together.soak.day import PERIOD, Day
from tests.together.soak.probe import Probe
from tests.together.soak.scenario import beginning

# A busy machine must not look like a source that hangs.
LIMIT_SECONDS = 120.0
PATIENT = Budget(*[LIMIT_SECONDS] * len(Budget._fields))
Budget.of_interval = lambda _interval: PATIENT
# The fake driver keeps a hundred samples of each GPU, thousands of objects that are not the exporter's.
machine.SAMPLES = 2
# The newest events keep the names of their holders, a hundred objects each. In a short run they would fill
# up until its end, which looks like growth.
events.RECENT = 16


class Acted:
    """The driver of the day, moved from poll to poll."""

    def __init__(self, day: Day) -> None:
        self.poll = 0
        self.library = FakeNvml(beginning().node)
        self._day = day
        self._machine = machine.Machine()
        self._moved = time.monotonic()
        self._show()

    def move(self, poll: int) -> None:
        """Bring the driver to a poll, and the clocks of the process with it."""
        passed = time.monotonic() - self._moved
        clock.WARP.forward((poll - self.poll) * PERIOD - passed)
        self._moved = time.monotonic()
        self.poll = poll
        self._show()

    def _show(self) -> None:
        now = present(self._day.scenario(self.poll), self.poll * PERIOD)
        self.library.show(self._machine.step(now, time.time()), now.nvml_faults, loaded=now.loaded)
        # What it counts of MIG devices that are gone would be more with each layout.
        self.library.calls.clear()


class Commanded(Poller):
    """A poller that polls on request, by the clock of the day."""

    acted: Acted

    def __init__(self, settings: Settings, sources: Sources, **options: Any) -> None:
        super().__init__(settings, sources, **options, clock=lambda: float(self.acted.poll * PERIOD))

    async def first(self) -> None:
        """Poll for the first time, and note what there is before the collector is frozen."""
        await super().first()
        self._probe = Probe()

    async def run(self) -> None:
        """Obey the lines of the input until it ends."""
        lines = asyncio.StreamReader()
        pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
        )
        with contextlib.closing(pipe):
            while line := await lines.readline():
                say(json.dumps(await self._obey(json.loads(line))))

    async def _obey(self, command: dict[str, Any]) -> dict[str, Any]:
        if "poll" not in command:
            return self._probe.look()
        self.acted.move(command["poll"])
        # What GPUs report comes through a thread of its own; the page has all of it.
        await asyncio.to_thread(self.acted.library.events.settle, LIMIT_SECONDS)
        await self._guarded_poll()
        return {"cpu": time.process_time()}


def say(text: str) -> None:
    """Write a line."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def serve(day: Day, announce: Callable[[str], None]) -> None:
    """Serve until a signal comes."""
    Commanded.acted = Acted(day)
    serving.Poller = Commanded
    await serving.serve(
        # The laws that the page is held to are about series of all sets.
        Node(
            settings=load_settings({"metric_set": "full", "dcgm_names": "all"}, os.environ),
            nvml_library=Commanded.acted.library,
        ),
        announce,
    )


if __name__ == "__main__":
    # Failures are logged thousands of times on such a day.
    logging.basicConfig(level=logging.ERROR)
    asyncio.run(serve(Day(*map(int, sys.argv[1:])), say))
