"""What a fleet costs the Prometheus that scrapes it, and what joined labels save against copied ones.

Run as ``python -m benchmarks.fleet [--quick]``; it takes four minutes, and writes build/bench/fleet.json.
"""

import argparse
import asyncio
import json
import math
import os
import signal
import statistics
import sys
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import fleet_disk, fleet_forms, fleet_growth
from benchmarks.effort import FULL, LEAST, Effort
from benchmarks.fleet_growth import Size
from benchmarks.fleet_table import table
from benchmarks.running import ROOT
from benchmarks.simulated.frames import frame, only, recorded

RESULTS = ROOT / "build/bench/fleet.json"
_SHOWN = 20

FARTHEST = 10_000
"""Up to so many nodes is reckoned what grows."""

MISSING = RuntimeError, TimeoutError
"""Why it cannot be measured on this machine: no Prometheus, or too little memory or time for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is measured: fleets of ``node`` that grow, one of many ``small`` nodes, one of ``formed`` nodes.

    The pages of the last are those that are stored. ``pages`` is how many of each node are recorded; with
    ``at_once`` nothing is measured alone.
    """

    node: str
    small: str
    formed: str
    pages: Mapping[str, int]
    sizes: Sequence[Size]
    many: Size
    forms: fleet_forms.Turns
    at_once: bool = False


_FULL = Plan(
    node="crowd-16",
    small="crowd-1",
    formed="exclusive",
    # For what is stored, as many as a chunk has samples; else one for each scrape that there is time for.
    pages={"crowd-16": _SHOWN, "crowd-1": 5, "exclusive": 120},
    sizes=(Size(100, 5, 6), Size(300, 5, 12), Size(1000, 10, 35)),
    many=Size(10_000, 15),
    forms=fleet_forms.Turns(nodes=30, scrape=2, windows=3, asked=12, hours=3),
)
_LEAST = Plan(
    node="crowd-1",
    small="crowd-1",
    formed="crowd-1",
    pages={"crowd-1": 3},
    sizes=(Size(1, 0.5, 1), Size(3, 0.5, 1)),
    many=Size(5, 0.5),
    forms=fleet_forms.Turns(nodes=2, scrape=0.5, windows=1, asked=1, hours=1),
    at_once=True,
)


async def measure(_node: str, effort: Effort) -> dict[str, Any]:
    """Measure all of it, with a real Prometheus; raise one of MISSING."""
    try:
        return await _measured(_LEAST if effort == LEAST else _FULL)
    except SystemExit as ended:
        # With a text it is a Prometheus that takes too much memory, else somebody wants an end.
        if not isinstance(ended.code, str):
            raise
        raise RuntimeError(ended.code) from None


async def _measured(plan: Plan) -> dict[str, Any]:
    pages = {node: await recorded(node, count) for node, count in plan.pages.items()}
    read = fleet_growth.read_by_rules()
    cut = {node: [frame(only(page, read)) for page in pages[node]] for node in (plan.node, plan.small)}
    disk, forms, many, *growth = await _each(
        plan,
        fleet_disk.measured(pages[plan.formed]),
        fleet_forms.measured(pages[plan.formed][-_SHOWN:], plan.forms),
        fleet_growth.measured(plan.many, cut[plan.small]),
        *(fleet_growth.measured(size, cut[plan.node]) for size in plan.sizes),
    )
    return {
        "growth": growth,
        "exponents": {what: _exponent(growth, what) for what in _GROWING},
        "reckoned": {what: _at(FARTHEST, growth, what) for what in _GROWING} | {"nodes": FARTHEST},
        "many": many,
        "disk": disk,
        "processors": f"{os.cpu_count()} processors",
        "compared": forms,
    }


async def _each(plan: Plan, *phases: Coroutine[Any, Any, dict[str, Any]]) -> list[dict[str, Any]]:
    if plan.at_once:
        return await asyncio.gather(*phases)
    return [await phase for phase in phases]


_GROWING = "series", "scraping", "resident", "live", "rules_cpu", "rules_busy", "resident_with_rules"


def _line(fleets: Sequence[dict[str, Any]], what: str) -> tuple[float, float]:
    pairs = [(math.log(fleet["nodes"]), math.log(max(fleet[what], 1e-9))) for fleet in fleets]
    return statistics.linear_regression(*zip(*pairs, strict=True))


def _exponent(fleets: Sequence[dict[str, Any]], what: str) -> float:
    """Say by which power of the number of nodes something grows."""
    return _line(fleets, what)[0]


def _at(nodes: int, fleets: Sequence[dict[str, Any]], what: str) -> float:
    """Say what something would come to for more nodes than were measured, if it goes on to grow like that."""
    slope, start = _line(fleets, what)
    return math.exp(start + slope * math.log(nodes))


def main() -> None:
    """Measure, keep what was found, and print it as a page has it."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fleet", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="measure next to nothing, and keep nothing")
    quick = parser.parse_args().quick
    # Who is told to end must not leave a Prometheus behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        found = asyncio.run(measure("", LEAST if quick else FULL))
    except MISSING as error:
        sys.exit(f"fleet: {error}")
    if not quick:
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    sys.stdout.write(f"{table(found)}\n")


if __name__ == "__main__":
    main()
