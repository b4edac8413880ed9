"""What running programs take: a cycle, a scrape, ten scrapers at once, and with a slow driver."""

import math
import statistics
import time
from collections.abc import Mapping, Sequence
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

Programs = Mapping[str, Running]
Figures = dict[str, dict[str, Any]]
"""By the name of a program."""


def idle(programs: Programs, turns: int, seconds: float, scrape_every: float = math.inf) -> Figures:
    """Watch the programs poll side by side for some turns, scraped or not; return their medians."""
    watched = [_watched(programs, seconds, scrape_every) for _ in range(turns)]
    return {
        name: {key: statistics.median(turn[name][key] for turn in watched) for key in figures}
        for name, figures in watched[0].items()
    }


def _watched(programs: Programs, seconds: float, scrape_every: float) -> Figures:
    before = {name: (program.process.cpu(), program.control.counts()) for name, program in programs.items()}
    began, due = time.monotonic(), scrape_every / 2
    while due < seconds:
        time.sleep(max(0.0, began + due - time.monotonic()))
        for program in programs.values():
            _scrape(program)
        due += scrape_every
    time.sleep(max(0.0, began + seconds - time.monotonic()))
    figures = {}
    for name, program in programs.items():
        cpu_before, counts_before = before[name]
        cpu, counts = program.process.cpu() - cpu_before, program.control.counts()
        calls, cycles = counts.calls - counts_before.calls, counts.cycles - counts_before.cycles
        per_cycle = 1 / cycles if cycles else math.nan
        figures[name] = {
            "cpu_ms_a_cycle": cpu * per_cycle * 1e3,
            "cpu_share": cpu / seconds,
            "calls_a_cycle": calls * per_cycle,
            "calls_a_minute": calls * 60 / seconds,
            "fields_a_cycle": (counts.fields - counts_before.fields) * per_cycle,
        }
    return figures


def scraped(programs: Programs, unscraped: Figures, rounds: int) -> Figures:
    """Scrape each program about once a second, one after the other."""
    began, before = time.monotonic(), {name: program.process.cpu() for name, program in programs.items()}
    latencies: dict[str, list[float]] = {name: [] for name in programs}
    for number in range(rounds):
        for place, (name, program) in enumerate(programs.items()):
            due = began + (number + place / len(programs)) * PERIOD_SECONDS
            time.sleep(max(0.0, due - time.monotonic()))
            latencies[name].append(_scrape(program))
    time.sleep(max(0.0, began + rounds * PERIOD_SECONDS - time.monotonic()))
    elapsed = time.monotonic() - began
    return {
        name: _summary(
            latencies[name], program.process.cpu() - before[name] - unscraped[name]["cpu_share"] * elapsed
        )
        for name, program in programs.items()
    }


def crowded(programs: Programs, unscraped: Figures) -> Figures:
    """Let ten scrapers at once scrape each program, the programs in turn."""
    latencies: dict[str, list[float]] = {name: [] for name in programs}
    cpu = dict.fromkeys(programs, 0.0)
    with ThreadPoolExecutor(SCRAPERS) as pool:
        for _ in range(CROWDS):
            for name, program in programs.items():
                began, before = time.monotonic(), program.process.cpu()
                latencies[name] += pool.map(_scrape, [program] * (SCRAPERS * SCRAPES_EACH))
                elapsed = time.monotonic() - began
                cpu[name] += program.process.cpu() - before - unscraped[name]["cpu_share"] * elapsed
    return {name: _summary(seconds, cpu[name]) for name, seconds in latencies.items()}


def slowed(programs: Programs, unscraped: Figures, seconds: float) -> Figures:
    """Let each call and each field value take a millisecond; measure how long a cycle takes then."""
    for program in programs.values():
        program.control.slow(SLOW_MICROSECONDS)
    time.sleep(SETTLE_SECONDS)
    before = {name: program.control.counts().calls for name, program in programs.items()}
    time.sleep(seconds)
    figures = {}
    for name, program in programs.items():
        calls = program.control.counts().calls - before[name]
        cycle = seconds * unscraped[name]["calls_a_cycle"] / calls if calls else math.nan
        figures[name] = {"seconds_a_cycle": cycle}
        program.control.slow(0)
    return figures


def _scrape(program: Running) -> float:
    """Fetch the page as Prometheus does; return the seconds that it took."""
    began = time.perf_counter()
    program.process.get("metrics", _HEADERS)
    return time.perf_counter() - began


def _summary(seconds: Sequence[float], cpu: float) -> dict[str, float]:
    """Summarize scrapes; ``cpu`` is what they took in CPU seconds beyond what the program takes unscraped."""
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    latencies = {"best": min(seconds), "p50": cuts[49], "p99": cuts[98], "worst": max(seconds)}
    summary = {f"{name}_ms": value * 1e3 for name, value in latencies.items()}
    return summary | {"cpu_ms": max(0.0, cpu) / len(seconds) * 1e3}
