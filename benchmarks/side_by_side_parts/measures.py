"""What running programs take: a cycle, a scrape, ten scrapers at once, and a driver that is slow."""

import math
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.side_by_side_parts.running import Running

SCRAPERS, SCRAPES_EACH, CROWDS = 10, 5, 2
SLOW_MICROSECONDS, SETTLE_SECONDS = 1000, 3.0
# A little more than the second at which the programs poll, so that scrapes come at all points of a cycle.
PERIOD_SECONDS = 1.07

Figures = dict[str, Any]


def cycles(programs: Sequence[Running], seconds: float) -> dict[str, Figures]:
    """Watch the programs poll side by side, unscraped."""
    before = [(each.cpu(), each.control.counts()) for each in programs]
    time.sleep(seconds)
    after = [(each.cpu(), each.control.counts()) for each in programs]
    found = {}
    for each, (cpu, counts), (cpu_after, counts_after) in zip(programs, before, after, strict=True):
        passed = counts_after.cycles - counts.cycles
        share = 1 / passed if passed else math.nan
        found[each.program.name] = {
            "cycles": passed,
            "cpu_ms_a_cycle": (cpu_after - cpu) * share * 1e3,
            "cpu_share": (cpu_after - cpu) / seconds,
            "calls_a_cycle": (counts_after.calls - counts.calls) * share,
            "fields_a_cycle": (counts_after.fields - counts.fields) * share,
        }
    return found


def scrapes(programs: Sequence[Running], idle: dict[str, Figures], rounds: int) -> dict[str, Figures]:
    """Scrape each program about once a second, one after the other."""
    began, before = time.monotonic(), [each.cpu() for each in programs]
    took: dict[str, list[float]] = {each.program.name: [] for each in programs}
    for number in range(rounds):
        for place, each in enumerate(programs):
            due = began + (number + place / len(programs)) * PERIOD_SECONDS
            time.sleep(max(0.0, due - time.monotonic()))
            took[each.program.name].append(each.scrape())
    time.sleep(max(0.0, began + rounds * PERIOD_SECONDS - time.monotonic()))
    elapsed = time.monotonic() - began
    return {
        each.program.name: _latency(took[each.program.name])
        | {"cpu_ms": _beyond(each, cpu, idle, elapsed) / rounds * 1e3}
        for each, cpu in zip(programs, before, strict=True)
    }


def crowds(programs: Sequence[Running], idle: dict[str, Figures]) -> dict[str, Figures]:
    """Let ten scrapers at once ask each program, the programs in turn."""
    took: dict[str, list[float]] = {each.program.name: [] for each in programs}
    spent = dict.fromkeys(took, 0.0)
    with ThreadPoolExecutor(SCRAPERS) as pool:
        for _ in range(CROWDS):
            for each in programs:
                began, before = time.monotonic(), each.cpu()
                asked = [pool.submit(each.scrape) for _ in range(SCRAPERS * SCRAPES_EACH)]
                took[each.program.name] += [future.result() for future in asked]
                spent[each.program.name] += _beyond(each, before, idle, time.monotonic() - began)
    return {
        name: _latency(all_of) | {"cpu_ms": spent[name] / len(all_of) * 1e3} for name, all_of in took.items()
    }


def slow_driver(programs: Sequence[Running], idle: dict[str, Figures], seconds: float) -> dict[str, Figures]:
    """Let every call and every field value take a millisecond; return how long a cycle takes then."""
    for each in programs:
        each.control.slow(SLOW_MICROSECONDS)
    time.sleep(SETTLE_SECONDS)
    before = [each.control.counts().calls for each in programs]
    time.sleep(seconds)
    asked = [each.control.counts().calls - calls for each, calls in zip(programs, before, strict=True)]
    for each in programs:
        each.control.slow(0)
    return {
        each.program.name: {
            "seconds_a_cycle": seconds * idle[each.program.name]["calls_a_cycle"] / calls
            if calls
            else math.nan
        }
        for each, calls in zip(programs, asked, strict=True)
    }


def _beyond(each: Running, before: float, idle: dict[str, Figures], elapsed: float) -> float:
    """Return what a program took beyond what it takes unscraped."""
    unscraped: float = idle[each.program.name]["cpu_share"] * elapsed
    return max(0.0, each.cpu() - before - unscraped)


def _latency(seconds: Sequence[float]) -> Figures:
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    told = {"best": min(seconds), "p50": cuts[49], "p99": cuts[98], "worst": max(seconds)}
    return {f"{name}_ms": value * 1e3 for name, value in told.items()} | {"scrapes": len(seconds)}
