"""What each recording rule and alert costs a Prometheus, and which group of them makes how many series.

Run as ``python -m benchmarks.rules [nodes ...]``. A real Prometheus scrapes so many nodes, of 8 GPUs with two
holders each, which tell only what the rules read; it evaluates the real rules, more often than usual so
that there are several times to choose from. What all of them cost together is in ``benchmarks.fleet``.
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import sys
import time
from collections import defaultdict
from contextlib import suppress
from http.client import HTTPException
from typing import Any

from benchmarks.fleet_growth import all_scraped, read_by_rules, with_rules
from benchmarks.simulated.frames import frame, only, recorded
from benchmarks.simulated.nodes import Fleet, served
from benchmarks.simulated.prometheus import Prometheus, prometheus

_NODE, _FRAMES = "crowd-16", 20
# Labels of targets that are called as ours.
_CLASHING = {"namespace": "monitoring", "pod": "exporter", "container": "exporter", "node": "node"}
_Taken = dict[str, dict[str, list[float]]]


def main() -> None:
    """Measure each size and print."""
    asked = _arguments()
    # Who is told to end must not leave a Prometheus behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    for nodes in asked.nodes:
        asyncio.run(_measure(nodes, asked))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.rules", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("nodes", nargs="*", type=int, default=[50])
    parser.add_argument("--scrape", default=2, type=int, help="seconds between scrapes (default: 2)")
    parser.add_argument("--evaluate", default=5, type=int, help="seconds between evaluations (default: 5)")
    parser.add_argument("--seconds", default=20, type=int, help="how long to measure (default: 20)")
    parser.add_argument("--clash", action="store_true", help="labels of targets clash, and are not honoured")
    parser.add_argument("--each", action="store_true", help="print the cost of each rule, too")
    return parser.parse_args()


async def _measure(nodes: int, asked: argparse.Namespace) -> None:
    read = read_by_rules()
    frames = [frame(only(page, read)) for page in await recorded(_NODE, _FRAMES)]
    fleet, labels = Fleet(frames, nodes, asked.scrape), _CLASHING if asked.clash else {}
    async with (
        served(fleet) as port,
        prometheus(port, nodes, asked.scrape, honor=not asked.clash, labels=labels) as server,
    ):
        await all_scraped(server, nodes)
        scraped = await server.one("prometheus_tsdb_head_series")
        with_rules(server, asked.evaluate)
        # The first evaluations make the series, which costs more than to go on with them.
        await _watch(server, asked.evaluate * 2)
        taken = await _watch(server, asked.seconds)
        made = await server.metric("prometheus_rule_group_last_evaluation_samples")
    _say(f"{nodes} nodes (load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors)")
    _say(f"  {scraped:.0f} series scraped; {sum(made.values()):.0f} series made")
    _say(f"  {'group':<30}{'rules':>6}{'middle':>11}{'best':>11}{'series':>10}")
    for name, each in taken.items():
        count = next(value for text, value in made.items() if f';{name}"' in text)
        _say(f"  {name:<30}{len(each) - 1:6}{_times(each[''])}{count:10.0f}")
        for rule, seconds in each.items() if asked.each else ():
            if rule:
                _say(f"    {rule:<70}{_times(seconds)}")


async def _watch(server: Prometheus, seconds: float) -> _Taken:
    """Collect for so long what each evaluation took: seconds by group, and in it by rule ("" for all)."""
    taken: _Taken = defaultdict(lambda: defaultdict(list))
    seen: dict[str, str] = {}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await asyncio.sleep(1)
        server.stop_if_too_large()
        with suppress(OSError, HTTPException):
            for group in json.loads(await server.get("/api/v1/rules"))["data"]["groups"]:
                if seen.get(group["name"]) != group["lastEvaluation"]:
                    seen[group["name"]] = group["lastEvaluation"]
                    _note(taken[group["name"]], group)
    return taken


def _note(taken: dict[str, list[float]], group: dict[str, Any]) -> None:
    taken[""].append(group["evaluationTime"])
    for rule in group["rules"]:
        taken[rule["name"]].append(rule["evaluationTime"])
        if rule.get("lastError"):
            raise SystemExit(f"{rule['name']}: {rule['lastError']}")


def _times(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):9.3f} s{min(seconds):9.3f} s"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
