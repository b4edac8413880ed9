"""Measure, judge, and write docs/performance.md: ``python -m benchmarks [--only NAME]``.

Results lie in build/bench, a file of JSON for each measure of each node. What cannot be measured on this
machine is told, and the rest goes on; with ``--only`` the code is 1 then. Measuring all takes half an hour.
"""

import argparse
import asyncio
import json
import os
import platform
import re
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks import fleet, growth, libraries, memory, polls, scrapes, side_by_side, startup
from benchmarks.document import page
from benchmarks.effort import FULL, LEAST, Effort
from benchmarks.judge import verdicts
from benchmarks.nodes import NODES
from benchmarks.running import ROOT

Measure = Callable[[str, Effort], Awaitable[dict[str, Any]]]
_OF_NODES: Mapping[str, Measure] = {
    "polls": polls.measure,
    "scrapes": scrapes.measure,
    "startup": startup.measure,
    "memory": memory.measure,
}
MEASURES: Mapping[str, tuple[Measure, str]] = {
    **{f"{name}-{node}": (measure, node) for node in NODES for name, measure in _OF_NODES.items()},
    "libraries": (libraries.measure, ""),
    "growth": (growth.measure, ""),
    "side-by-side": (side_by_side.measure, ""),
    "fleet": (fleet.measure, ""),
}
"""By the name that results go by: how it is measured, and on which node."""
_MISSING: Mapping[str, tuple[type[Exception], ...]] = {
    "side-by-side": side_by_side.MISSING,
    "fleet": fleet.MISSING,
}
RESULTS, DOCUMENT = ROOT / "build/bench", ROOT / "docs/performance.md"


async def main() -> int:
    """Measure what is asked for; write the page when that was everything."""
    asked = _arguments()
    names = [
        name
        for name, (_, node) in MEASURES.items()
        if asked.only in ("", node, name, name.partition("-")[0]) and not asked.write
    ]
    effort = LEAST if asked.quick else FULL
    measured = [await _measured(name, effort, asked.results) for name in names]
    results = dict(_kept(asked.results))
    for judged in verdicts(results):
        sign = {True: "met", False: "NOT MET", None: "cannot be told:"}[judged.met]
        _say(f"{sign} {judged.target}, {judged.node or 'all'}: {judged.found}, aim {judged.aim}")
    if asked.write or not asked.only:
        asked.document.write_text(page(results), "utf-8")
        _say(f"{asked.document}")
    return int(bool(asked.only) and not all(measured))


async def _measured(name: str, effort: Effort, results: Path) -> bool:
    """Measure one thing and keep what was found, or why nothing was: False then."""
    kept = dict(_kept(results))
    loads, missing = kept.get("loads", {}), kept.get("missing", {})
    measure, node = MEASURES[name]
    began, load = time.monotonic(), os.getloadavg()[0]
    try:
        found = await measure(node, effort)
    except _MISSING.get(name, ()) as error:
        missing[name] = " ".join(str(error).split())
        _keep(results, "missing", missing)
        _say(f"{name}: not measured: {missing[name]}")
        return False
    _keep(results, name, found)
    if missing.pop(name, None) is not None:
        _keep(results, "missing", missing)
    loads[name] = load
    _keep(results, "loads", loads)
    _keep(results, "machine", _machine(loads))
    _say(f"{name}: {time.monotonic() - began:.0f} s")
    return True


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    names = sorted({*NODES, *_OF_NODES, *MEASURES})
    parser.add_argument("--only", default="", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--quick", action="store_true", help="measure next to nothing, to see that it works")
    parser.add_argument(
        "--write", action="store_true", help="measure nothing: write the page from all results that there are"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER")
    parser.add_argument("--document", type=Path, default=DOCUMENT, metavar="FILE")
    asked = parser.parse_args()
    if asked.quick and {asked.results, asked.document} & {RESULTS, DOCUMENT}:
        parser.error("what --quick finds is worth nothing: give it other --results and another --document")
    return asked


def _keep(folder: Path, name: str, found: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n", "utf-8")


def _kept(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in (*MEASURES, "machine", "loads", "missing"):
        path = folder / f"{name}.json"
        if path.exists():
            yield name, json.loads(path.read_text("utf-8"))


def _machine(loads: Mapping[str, float]) -> dict[str, str]:
    """Name the machine that this runs on; ``loads`` is how busy it was when each measure began."""
    models = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text("utf-8"), re.MULTILINE)
    return {
        "processor": f"{models[0] if models else platform.machine()}, {os.cpu_count()} cores",
        "kernel": f"Linux {platform.release()}",
        "Python": platform.python_version(),
        f"load when a measure began, of {len(loads)} of {len(MEASURES)}": (
            f"{min(loads.values()):.1f} to {max(loads.values()):.1f}"
        ),
        "day": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    # Who is told to end must not leave behind what it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(asyncio.run(main()))
