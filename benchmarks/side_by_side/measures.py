"""What running programs take: a cycle, a scrape, ten scrapers at once, and with a slow driver."""

import math
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.side_by_side.programs import Running

SCRAPERS, SCRAPES_EACH, CROWDS = 10, 5, 2
SLOW_MICROSECONDS, SETTLE_SECONDS = 1000, 3.0
# A little more than the second at which the programs poll, so that scrapes come at all points of a cycle.
PERIOD_SECONDS = 1.07
_HEADERS = {
    "Accept": "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1",
    "Accept-Encoding": "gzip",
}

Figures = dict[str, Any]
ByProgram = dict[str, Figures]


def idle(programs: Sequence[Running], seconds: float) -> ByProgram:
    """Watch the programs poll side by side, unscraped."""
    before = [(running.process.cpu(), running.control.counts()) for running in programs]
    time.sleep(seconds)
    figures = {}
    for running, (cpu_before, counts_before) in zip(programs, before, strict=True):
        cpu, counts = running.process.cpu() - cpu_before, running.control.counts()
        cycles = counts.cycles - counts_before.cycles
        per_cycle = 1 / cycles if cycles else math.nan
        calls = counts.calls - counts_before.calls
        figures[running.program.name] = {
            "cycles": cycles,
            "cpu_ms_a_cycle": cpu * per_cycle * 1e3,
            "cpu_share": cpu / seconds,
            "calls_a_cycle": calls * per_cycle,
            "calls_a_minute": calls * 60 / seconds,
            "fields_a_cycle": (counts.fields - counts_before.fields) * per_cycle,
        }
    return figures


def scraped(programs: Sequence[Running], unscraped: ByProgram, rounds: int) -> ByProgram:
    """Scrape each program about once a second, one after the other."""
    began, cpu_before = time.monotonic(), [running.process.cpu() for running in programs]
    latencies: dict[str, list[float]] = {running.program.name: [] for running in programs}
    for number in range(rounds):
        for place, running in enumerate(programs):
            due = began + (number + place / len(programs)) * PERIOD_SECONDS
            time.sleep(max(0.0, due - time.monotonic()))
            latencies[running.program.name].append(_scrape(running))
    time.sleep(max(0.0, began + rounds * PERIOD_SECONDS - time.monotonic()))
    elapsed = time.monotonic() - began
    return {
        running.program.name: _summary(
            latencies[running.program.name], _cpu_beyond(running, cpu, unscraped, elapsed)
        )
        for running, cpu in zip(programs, cpu_before, strict=True)
    }


def crowded(programs: Sequence[Running], unscraped: ByProgram) -> ByProgram:
    """Let ten scrapers at once scrape each program, the programs in turn."""
    latencies: dict[str, list[float]] = {running.program.name: [] for running in programs}
    cpu = dict.fromkeys(latencies, 0.0)
    with ThreadPoolExecutor(SCRAPERS) as pool:
        for _ in range(CROWDS):
            for running in programs:
                began, before = time.monotonic(), running.process.cpu()
                latencies[running.program.name] += pool.map(_scrape, [running] * (SCRAPERS * SCRAPES_EACH))
                elapsed = time.monotonic() - began
                cpu[running.program.name] += _cpu_beyond(running, before, unscraped, elapsed)
    return {name: _summary(seconds, cpu[name]) for name, seconds in latencies.items()}


def slowed(programs: Sequence[Running], unscraped: ByProgram, seconds: float) -> ByProgram:
    """Let each call and each field value take a millisecond; measure how long a cycle takes then."""
    for running in programs:
        running.control.slow(SLOW_MICROSECONDS)
    time.sleep(SETTLE_SECONDS)
    before = [running.control.counts().calls for running in programs]
    time.sleep(seconds)
    calls = [running.control.counts().calls - count for running, count in zip(programs, before, strict=True)]
    for running in programs:
        running.control.slow(0)
    per_cycle = [unscraped[running.program.name]["calls_a_cycle"] for running in programs]
    return {
        running.program.name: {"seconds_a_cycle": seconds * of_cycle / count if count else math.nan}
        for running, count, of_cycle in zip(programs, calls, per_cycle, strict=True)
    }


def _scrape(running: Running) -> float:
    """Fetch the page as Prometheus does; return the seconds that it took."""
    began = time.perf_counter()
    running.process.get("metrics", _HEADERS)
    return time.perf_counter() - began


def _cpu_beyond(running: Running, before: float, unscraped: ByProgram, elapsed: float) -> float:
    """Return the CPU seconds of a program beyond those that it takes unscraped."""
    idle_cpu: float = unscraped[running.program.name]["cpu_share"] * elapsed
    return max(0.0, running.process.cpu() - before - idle_cpu)


def _summary(seconds: Sequence[float], cpu: float) -> Figures:
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    latencies = {"best": min(seconds), "p50": cuts[49], "p99": cuts[98], "worst": max(seconds)}
    return {f"{name}_ms": value * 1e3 for name, value in latencies.items()} | {
        "scrapes": len(seconds),
        "cpu_ms": cpu / len(seconds) * 1e3,
    }
