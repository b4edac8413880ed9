"""Measure, judge, and write docs/performance.md: ``python -m benchmarks [--only NAME]``.

Results are in build/bench, a file of JSON for each measure of each node. A measure that cannot be made on
this machine is reported, and the others go on; with ``--only`` the exit code is 1 then. All of them take
more than half an hour.
"""

import argparse
import json
import os
import platform
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks import fleet, memory, polls, scrapes, side_by_side
from benchmarks.document import page, verdicts
from benchmarks.nodes import NODES
from benchmarks.processes import ROOT, MissingError

Measure = Callable[..., dict[str, Any]]
_OF_NODES: Mapping[str, Measure] = {
    "polls": polls.measure,
    "scrapes": scrapes.measure,
    "startup": scrapes.measure_start,
    "memory": memory.measure,
}
MEASURES: Mapping[str, tuple[Measure, str]] = {
    **{f"{name}-{node}": (measure, node) for node in NODES for name, measure in _OF_NODES.items()},
    "libraries": (memory.measure_libraries, ""),
    "growth": (polls.measure_growth, ""),
    "side-by-side": (side_by_side.measure, ""),
    "fleet": (fleet.measure, ""),
}
"""By the name of its results: how it is measured, and on which node."""
RESULTS, DOCUMENT = ROOT / "build/bench", ROOT / "docs/performance.md"


def main() -> int:
    """Measure what the arguments name; write the page if that was everything."""
    arguments = _arguments()
    only, folder = arguments.only, arguments.results
    names = [
        name
        for name, (_, node) in MEASURES.items()
        if only in ("", node, name, name.partition("-")[0]) and not arguments.write
    ]
    measured = [_measured(name, folder, quick=arguments.quick) for name in names]
    results = _load(folder)
    for verdict in verdicts(results):
        sign = {True: "met", False: "NOT MET", None: "uncertain:"}[verdict.met]
        _say(f"{sign} {verdict.target}, {verdict.node or 'all'}: {verdict.found}, aim {verdict.aim}")
    if arguments.write or not only:
        arguments.document.write_text(page(results), "utf-8")
        _say(f"{arguments.document}")
    return int(bool(only) and not all(measured))


def _measured(name: str, folder: Path, *, quick: bool) -> bool:
    """Make one measure and store its results; or store the reason why not, and return False."""
    stored = _load(folder)
    loads, missing = stored.get("loads", {}), stored.get("missing", {})
    measure, node = MEASURES[name]
    began, load = time.monotonic(), os.getloadavg()[0]
    try:
        figures = measure(node, quick=quick)
    except MissingError as error:
        missing[name] = " ".join(str(error).split())
        _store(folder, "missing", missing)
        _say(f"{name}: not measured: {missing[name]}")
        return False
    _store(folder, name, figures)
    if missing.pop(name, None) is not None:
        _store(folder, "missing", missing)
    loads[name] = load
    _store(folder, "loads", loads)
    _store(folder, "machine", _machine(loads))
    _say(f"{name}: {time.monotonic() - began:.0f} s")
    return True


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    names = sorted({*NODES, *_OF_NODES, *MEASURES})
    parser.add_argument("--only", default="", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--quick", action="store_true", help="measure next to nothing, to see that it works")
    parser.add_argument(
        "--write", action="store_true", help="measure nothing: write the page from all results"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER")
    parser.add_argument("--document", type=Path, default=DOCUMENT, metavar="FILE")
    arguments = parser.parse_args()
    if arguments.quick and {arguments.results, arguments.document} & {RESULTS, DOCUMENT}:
        parser.error(
            "the figures of --quick are worth nothing: give it other --results and another --document"
        )
    return arguments


def _store(folder: Path, name: str, figures: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(figures, indent=1) + "\n", "utf-8")


def _load(folder: Path) -> dict[str, dict[str, Any]]:
    files = ((name, folder / f"{name}.json") for name in (*MEASURES, "machine", "loads", "missing"))
    return {name: json.loads(file.read_text("utf-8")) for name, file in files if file.exists()}


def _machine(loads: Mapping[str, float]) -> dict[str, str]:
    """Describe this machine; ``loads`` is its load when each measure began."""
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
    # So that a SIGTERM ends what was started, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(main())
