"""What the measured process has of a node: a fake driver, whose time may be moved by hand, and its answers.

The program itself is not imported here, because its start is timed.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exporter.demo.nvml import FakeNvml
    from exporter.model import Snapshot
    from exporter.poll.poller import Poller

POLL_SECONDS = 5.0


class LazyDriver:
    """The fake driver's library, made when its first function is looked up.

    Until then the program is as it is on a real node. ``wall`` returns the node's Unix time.
    """

    def __init__(self, node: str, wall: Callable[[], float]) -> None:
        self.library: FakeNvml | None = None
        self.cpu_seconds = 0.0  # CPU time that making and moving it took
        self.made_seconds = 0.0  # wall time that making it took
        self._node = node
        self._wall = wall
        self._show: Callable[[float], None]

    def __getattr__(self, name: str) -> Any:
        if self.library is None:
            cpu, began = time.thread_time(), time.perf_counter()
            self.library = self._made()
            self.cpu_seconds = time.thread_time() - cpu
            self.made_seconds = time.perf_counter() - began
        return getattr(self.library, name)

    def _made(self) -> "FakeNvml":
        from benchmarks.nodes import load  # noqa: PLC0415 - reading the demo is no part of the program's start
        from exporter.demo.machine import Machine  # noqa: PLC0415 - as above
        from exporter.demo.nvml import FakeNvml  # noqa: PLC0415 - as above
        from exporter.demo.present import present  # noqa: PLC0415 - as above

        scenario, machine = load(self._node), Machine(0)
        library = FakeNvml(scenario.node, scenario.missing_functions)

        def show(seconds: float) -> None:
            now = present(scenario, seconds)
            library.show(machine.step(now, self._wall()), now.nvml_faults, loaded=now.loaded)

        show(0.0)
        self._show = show
        return library

    def move(self, seconds: float) -> None:
        """Show the node as it is ``seconds`` after its start."""
        if self.library is not None:
            cpu = time.thread_time()
            self._show(seconds)
            self.cpu_seconds += time.thread_time() - cpu

    def usage(self) -> dict[str, float]:
        """Return the seconds that the fake driver took, and the calls to it."""
        calls = self.library.total_calls if self.library is not None else 0
        return {"fake_cpu": self.cpu_seconds, "fake_wall": self.made_seconds, "calls": calls}


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

    async def poll(self) -> "tuple[Snapshot, float]":
        """Let the time between two polls pass, and poll; return the CPU seconds of the poll too."""
        self.seconds += POLL_SECONDS
        self.driver.move(self.seconds)
        start = time.process_time()
        snapshot = await self.poller.poll()
        return snapshot, time.process_time() - start


def say(answer: object) -> None:
    """Answer a request."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
