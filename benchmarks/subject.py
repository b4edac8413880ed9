"""The process that is measured: the real program, from its command line on, with a faked driver.

``python -m benchmarks.subject HOW NODE``, whose environment names the rest of the node. HOW is ``live``: it
polls as it does on a real node; ``by-hand``: it polls when it is told to, 5 s of the node's time after the
poll before; or a number: no program runs, and what the faked driver has in memory after so many polls is
printed. Requests are lines of JSON on standard input, {"do": name, ...}, each answered by one on standard
output.
"""

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pynvml

if TYPE_CHECKING:
    from benchmarks.driver import Driver

POLL_SECONDS = 5.0
# How far back the time of a node begins that is set by hand: polls must not come to be in the future.
BACK_SECONDS = 7200.0


class Lazy:
    """Stands for the driver's library until the first of its functions is looked up, and then makes it.

    Until it asks the driver, the program is as it is on a real node. ``cpu`` and ``wall`` are what making
    took, in seconds.
    """

    def __init__(self, make: Callable[[], "Driver"]) -> None:
        self.cpu = self.wall = 0.0
        self.driver: Driver | None = None
        self._make = make

    def __getattr__(self, name: str) -> Any:
        if self.driver is None:
            cpu, wall = time.thread_time(), time.perf_counter()
            self.driver = self._make()
            self.cpu, self.wall = time.thread_time() - cpu, time.perf_counter() - wall
        return getattr(self.driver.library, name)

    def usage(self) -> dict[str, Any]:
        """Tell what the process has taken, in seconds of a processor and in bytes, and what the fake has."""
        lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
        sizes = {words[0]: int(words[1]) << 10 for words in lines if words[0] in ("VmRSS:", "VmHWM:")}
        moving = self.driver.cpu if self.driver is not None else 0.0
        return {
            "cpu": time.process_time(),
            "resident": sizes["VmRSS:"],
            "peak": sizes["VmHWM:"],
            "faked_cpu": self.cpu + moving,
            "faked_wall": self.wall,
        }


def say(answer: object) -> None:
    """Answer a request."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _make(name: str, wall: Callable[[], float]) -> "Driver":
    # Here, so that what only the fake needs is read when it is made.
    from benchmarks.driver import Driver  # noqa: PLC0415
    from benchmarks.nodes import load  # noqa: PLC0415

    return Driver(load(name), wall)


def _live(name: str) -> Lazy:
    began = time.monotonic()
    library = Lazy(lambda: _make(name, time.time))

    def move() -> None:
        while True:
            time.sleep(POLL_SECONDS)
            if library.driver is not None:
                library.driver.move(time.monotonic() - began)

    def answer() -> None:
        for _ in sys.stdin:
            say(library.usage())

    for work in (move, answer):
        threading.Thread(target=work, daemon=True).start()
    return library


def _by_hand(name: str) -> Lazy:
    from benchmarks.by_hand import Hand, take_over  # noqa: PLC0415 - it is the program, which is not yet timed

    hand = Hand(time.time() - BACK_SECONDS)
    library = Lazy(lambda: _make(name, hand.wall))
    take_over(library, hand)
    return library


def _tell_fake(name: str, polls: int) -> None:
    """Print the bytes that the faked driver has in memory after so many polls."""
    import tracemalloc  # noqa: PLC0415 - nobody else needs it

    import exporter.cli  # noqa: F401, PLC0415 - what the program reads too is not the fake's

    tracemalloc.start()
    driver = _make(name, time.time)
    for turn in range(polls):
        driver.move(turn * POLL_SECONDS)
    say({"traced": tracemalloc.get_traced_memory()[0]})


def main(how: str, name: str) -> int:
    """Be the program, or the fake alone."""
    if how.isdigit():
        _tell_fake(name, int(how))
        return 0
    pynvml.nvmlLib = {"live": _live, "by-hand": _by_hand}[how](name)
    from exporter.cli import main as program  # noqa: PLC0415 - reading it is a part of its start

    return program(["serve"])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
