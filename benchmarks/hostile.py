"""Scrapes beside hostile clients, and while a poll hangs: ``python -m benchmarks.hostile [NAME]``.

Prints a table in Markdown. Each row is one run of the exporter: the time of a scrape at rest, and the ratio
to it of scrapes beside a crowd of clients, or while a call into the driver does not return. With NAME only
crowds with that in their name are measured.
"""

import argparse
import asyncio
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from http.client import HTTPException
from typing import NamedTuple

from benchmarks.markdown import table
from exporter.demo.scenario import NvmlHang
from tests.page.abuse.attacks import ATTACKS, Attack
from tests.page.abuse.clients import crowd
from tests.page.abuse.victim import Vitals, victim
from tests.together.faults.harness import scenario_fault, watched
from tests.together.faults.nvml_nodes import new

CLIENTS, SECONDS = 1000, 10.0
# Files of this process beside those of a crowd.
_OURS = 200
_AT_REST, _IN_PROCESS = 20, 100
_HEAD = (
    "beside",
    "a scrape at rest",
    "median",
    "slowest",
    "scrapes",
    "without an answer",
    "most files",
    "most memory",
)


class Scrapes(NamedTuple):
    """Seconds of each scrape; ``missed`` had no answer."""

    at_rest: Sequence[float]
    beside: Sequence[float]
    missed: int
    most: Vitals | None = None

    def row(self, name: str) -> tuple[str, ...]:
        """Return the cells of a row."""
        usual, most = statistics.median(self.at_rest), self.most
        return (
            name,
            f"{usual * 1e3:.1f} ms",
            f"{statistics.median(self.beside) / usual:.1f} x" if self.beside else "",
            f"{max(self.beside) / usual:.1f} x" if self.beside else "",
            str(len(self.beside) + self.missed),
            str(self.missed),
            "" if most is None else str(most.files),
            "" if most is None else f"{most.memory:.0f} MiB",
        )


def beside(attack: Attack, clients: int, seconds: float) -> Scrapes:
    """Scrape an exporter at rest, and for some seconds beside an attack."""
    with victim() as served:
        at_rest = [_timed(served.scrape) for _ in range(_AT_REST)]
        times, missed, most = [], 0, served.vitals()
        with crowd(served.port, clients, small=attack.small) as attackers:
            attack.begin(attackers)
            end = time.monotonic() + seconds
            while not (times or missed) or time.monotonic() < end:
                attack.again(attackers)
                try:
                    times.append(_timed(served.scrape))
                except (OSError, HTTPException):
                    missed += 1
                    served.close()
                most = Vitals(*map(max, most, served.vitals()))
    return Scrapes(at_rest, times, missed, most)


def beside_a_hang() -> Scrapes:
    """Scrape an exporter at rest, and while a call into the driver does not return."""
    return asyncio.run(_beside_a_hang())


async def _beside_a_hang() -> Scrapes:
    fault = NvmlHang(kind="nvml_hang", function="nvmlDeviceGetCount_v2", device=None, seconds=None)
    async with watched(new()) as watch:

        async def scrapes() -> list[float]:
            times = []
            for _ in range(_IN_PROCESS):
                began = time.perf_counter()
                await watch.text()
                times.append(time.perf_counter() - began)
            return times

        await watch.rest()
        at_rest = await scrapes()
        async with watch.calls.hanging(fault, returns=True), scenario_fault(watch, fault):
            poll = asyncio.ensure_future(watch.poller.poll())
            await watch.calls.begun.wait()
            hung = await scrapes()
            watch.calls.expire()
            await poll
    return Scrapes(at_rest, hung, 0)


def _timed(scrape: Callable[[], object]) -> float:
    began = time.perf_counter()
    scrape()
    return time.perf_counter() - began


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", nargs="?", default="", help="a part of the names of the crowds")
    parser.add_argument("--clients", type=int, default=CLIENTS, help="of a crowd (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of an attack (default %(default)s)")
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < options.clients + _OURS:
        sys.exit(f"error: {options.clients} clients need more than the {most} open files that are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (options.clients + _OURS, most))
    rows = [] if options.name else [beside_a_hang().row("a poll that hangs")]
    for attack in ATTACKS:
        if options.name in attack.name:
            measured = beside(attack, options.clients, options.seconds)
            rows.append(measured.row(f"{options.clients} clients: {attack.name}"))
    print(table(_HEAD, rows))  # noqa: T201 - this is its output


if __name__ == "__main__":
    main()
