"""What a Prometheus spends on fleets of more and more nodes: to scrape them, and to evaluate the rules."""

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.running import ROOT
from benchmarks.simulated.frames import Frame
from benchmarks.simulated.nodes import Fleet, served
from benchmarks.simulated.prometheus import Prometheus, prometheus
from exporter.metrics import FAMILIES

_RULES = ROOT / "alerts/rules"
_PATIENCE = 180.0
_SERIES = re.compile(r"(?<![:\w])gpuslice_\w+")
_EVERY = re.compile(r"^(  interval: )\S+$", re.MULTILINE)
_GROUP = re.compile(r'rule_group="[^"]*;([^"]+)"')
INTERVAL = 15
"""Seconds between scrapes for which the cost of scraping is told, whatever it is measured with."""


@dataclass(frozen=True, slots=True)
class Size:
    """So many nodes, scraped every ``scrape`` seconds; with rules every ``evaluate``, and without at 0."""

    nodes: int
    scrape: float
    evaluate: int = 0


def read_by_rules() -> frozenset[str]:
    """Name the series that recording rules or alerts read."""
    return frozenset(_SERIES.findall("".join(_rules().values()))) & {family.name for family in FAMILIES}


async def measured(size: Size, frames: Sequence[Frame]) -> dict[str, Any]:
    """Measure a fleet of this size; bytes, seconds, and what is of one sample or series says so."""
    fleet = Fleet(frames, size.nodes, size.scrape)
    async with served(fleet) as port, prometheus(port, size.nodes, size.scrape) as server:
        before = server.resident(), await server.live()
        await all_scraped(server, size.nodes)
        found = await _scraping(server, size, before)
        if size.evaluate:
            found |= await _evaluating(server, size, before, found["busy"])
        return found


async def all_scraped(server: Prometheus, nodes: int, since: float = 0.0) -> None:
    """Wait until each of so many targets was scraped after a point in time (Unix seconds).

    TimeoutError says how many were not.
    """
    good = f"count(timestamp(up) > {since:.3f} and up == 1)"
    end, scraped = time.monotonic() + _PATIENCE, 0
    while time.monotonic() < end:
        _, answer = await server.query(good)
        scraped = int(answer[0]["value"][1]) if answer else 0
        if scraped == nodes:
            return
        server.stop_if_too_large()
        await asyncio.sleep(0.2)
    raise TimeoutError(f"{nodes - scraped} of {nodes} nodes could not be scraped: is the machine too busy?")


async def _scraping(server: Prometheus, size: Size, before: tuple[int, int]) -> dict[str, Any]:
    count, used, start = await samples(server), server.used(), time.monotonic()
    await asyncio.sleep(size.scrape)
    taken = time.monotonic() - start
    busy, count = server.used() - used, await samples(server) - count
    resident, series = server.resident(), await server.one("prometheus_tsdb_head_series")
    return {
        "nodes": size.nodes,
        "series": series,
        "samples_per_second": count / taken,
        "cpu_per_sample": busy / count,
        "busy": busy / taken,
        "scraping": busy / count * series / INTERVAL,
        "resident": resident - before[0],
        "live": await server.live() - before[1],
        "log_per_sample": _size(server.folder / "data/wal") / await samples(server),
    }


async def samples(server: Prometheus) -> float:
    """Say how many samples it has taken in."""
    return await server.one("prometheus_tsdb_head_samples_appended_total")


async def _evaluating(
    server: Prometheus, size: Size, before: tuple[int, int], scraping: float
) -> dict[str, Any]:
    """Evaluate all groups of rules twice; the first time makes their series, the second is measured."""
    groups = _intervals()
    with_rules(server, size.evaluate)
    await server.until("prometheus_rule_evaluations_total", 1)
    await asyncio.sleep(size.evaluate)
    server.stop_if_too_large()
    used, start, count = server.used(), time.monotonic(), await _rounds(server)
    await asyncio.sleep(size.evaluate)
    taken = time.monotonic() - start
    busy, rounds = server.used() - used - scraping * taken, await _rounds(server) - count
    last = _by_group(await server.metric("prometheus_rule_group_last_duration_seconds"))
    made = _by_group(await server.metric("prometheus_rule_group_last_evaluation_samples"))
    failed = await server.one("prometheus_rule_evaluation_failures_total")
    if failed or last.keys() != groups.keys() or not rounds:
        raise RuntimeError(f"{failed:g} evaluations failed, {rounds:g} were made, of {len(last)} groups")
    each = busy / (rounds / len(groups))
    # What the processor was kept busy with in a group is told by the clock only: it is shared out by that.
    weighted = sum(last[name] / groups[name] for name in groups) / sum(last.values())
    return {
        "groups": {
            name: {"interval": groups[name], "seconds": last[name], "made": made[name]} for name in groups
        },
        "missed": await server.one("prometheus_rule_group_iterations_missed_total"),
        "made": sum(made.values()),
        "rules_cpu": each,
        "rules_busy": each * weighted,
        "resident_with_rules": server.resident() - before[0],
        "live_with_rules": await server.live() - before[1],
    }


async def _rounds(server: Prometheus) -> float:
    """Say how many groups have been evaluated, counted each time."""
    return await server.one("prometheus_rule_group_iterations_total")


def with_rules(server: Prometheus, evaluate: int) -> None:
    """Give it the shipped rules, with all groups evaluated every so many seconds."""
    for name, text in _rules().items():
        (server.folder / name).write_text(_EVERY.sub(rf"\g<1>{evaluate}s", text))
    server.reload()


def _by_group(found: Mapping[str, float]) -> dict[str, float]:
    return {match[1]: value for labels, value in found.items() if (match := _GROUP.search(labels))}


def _rules() -> dict[str, str]:
    """Read the files of rules as they are shipped."""
    return {path.name: path.read_text("utf-8") for path in _RULES.glob("*.yaml")}


def _intervals() -> dict[str, int]:
    """Give the seconds between two evaluations of each group, as shipped."""
    found = re.findall(r"^- name: (\S+)\n  interval: (\d+)m$", "".join(_rules().values()), re.MULTILINE)
    return {name: 60 * int(minutes) for name, minutes in found}


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*") if file.is_file())
