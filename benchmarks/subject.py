"""The process that is measured: the real program, from its command line on, with a fake driver.

``python -m benchmarks.subject HOW NODE``, with an environment that points at the rest of the node. HOW is
``live``: it polls as on a real node; ``by-hand``: it polls on request, 5 s of the node's time after the poll
before; or a number: no program runs, and the bytes that the fake driver takes after that number of polls are
printed. Requests are lines of JSON on standard input, {"do": name, ...}; each is answered by one on standard
output.
"""

import sys
import threading
import time

import pynvml

from benchmarks.bench import POLL_SECONDS, LazyDriver, say

# How far back the clock of a node starts that is moved by hand: polls must not come to be in the future.
BACK_SECONDS = 7200.0


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
