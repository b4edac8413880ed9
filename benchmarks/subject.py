"""The process that is measured: the real program, from its command line on, with a fake driver.

``python -m benchmarks.subject HOW NODE``, with an environment that points at the rest of the node. HOW is
``live``: it polls as on a real node; ``by-hand``: it polls on request, 5 s of the node's time after the poll
before; or a number: no program runs, and the bytes that the fake driver takes after that number of polls are
printed. Requests are lines of JSON on standard input, {"do": name, ...}; each is answered by one on standard
output.
"""

import json
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pynvml

if TYPE_CHECKING:
    from exporter.demo.nvml import FakeNvml

POLL_SECONDS = 5.0
# How far back the clock of a node starts that is moved by hand: polls must not come to be in the future.
BACK_SECONDS = 7200.0


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
        # Imported here because reading the demo is no part of the program's start.
        from benchmarks.nodes import load  # noqa: PLC0415
        from exporter.demo.machine import Machine  # noqa: PLC0415
        from exporter.demo.nvml import FakeNvml  # noqa: PLC0415
        from exporter.demo.present import present  # noqa: PLC0415

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


def say(answer: object) -> None:
    """Answer a request."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _live(node: str) -> LazyDriver:
    began = time.monotonic()
    driver = LazyDriver(node, time.time)

    def move() -> None:
        while True:
            time.sleep(POLL_SECONDS)
            driver.move(time.monotonic() - began)

    def answer() -> None:
        for _ in sys.stdin:
            say(driver.usage())

    for work in (move, answer):
        threading.Thread(target=work, daemon=True).start()
    return driver


def _by_hand(node: str) -> LazyDriver:
    from benchmarks.by_hand import take_over  # noqa: PLC0415 - it imports the program, whose start is timed

    return take_over(node, time.time() - BACK_SECONDS)


def _trace_fake(node: str, polls: int) -> None:
    """Print the bytes that the fake driver takes after a number of polls."""
    import tracemalloc  # noqa: PLC0415 - only this needs it

    import exporter.cli  # noqa: F401, PLC0415 - what the program imports too is not the fake's

    tracemalloc.start()
    driver = LazyDriver(node, time.time)
    assert driver.nvmlInit_v2  # noqa: S101 - looking it up makes the driver
    for turn in range(polls):
        driver.move(turn * POLL_SECONDS)
    say(tracemalloc.get_traced_memory()[0])


def main(how: str, node: str) -> int:
    """Be the program, or the fake driver alone."""
    if how.isdigit():
        _trace_fake(node, int(how))
        return 0
    pynvml.nvmlLib = {"live": _live, "by-hand": _by_hand}[how](node)
    from exporter.cli import main as program  # noqa: PLC0415 - importing it is a part of its start

    return program(["serve"])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
