"""What a fleet costs the Prometheus that scrapes it."""

import math
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any

from benchmarks.fleet import sizes
from benchmarks.fleet.nodes import Lines, frame, only, recorded
from benchmarks.fleet.sizes import INTERVAL, Size
from benchmarks.markdown import table
from benchmarks.processes import MissingError
from benchmarks.prometheus import create_blocks, installed

Figures = Mapping[str, Any]
Spell = Callable[[float], str]

TEXTS = Path(__file__).with_name("texts.txt")
FARTHEST = 10_000
"""The number of nodes for which growing costs are extrapolated."""

_GROWING = "series", "scraping", "resident", "live", "rules_cpu", "rules_busy", "resident_with_rules"
_SMALL = "crowd-1"


def measure(_node: str, *, quick: bool) -> dict[str, Any]:
    """Measure fleets that grow, one of many small nodes, and pages on disk; raise MissingError."""
    for program in ("prometheus", "promtool"):
        installed(program)
    try:
        return _measured(quick=quick)
    except (RuntimeError, OSError, HTTPException, subprocess.CalledProcessError) as error:
        # A busy machine may time out anywhere.
        raise MissingError(str(error)) from error


def _measured(*, quick: bool) -> dict[str, Any]:
    if quick:
        node, stored, pages = _SMALL, _SMALL, {_SMALL: 3}
        growing, many = [Size(1, 0.5, 1), Size(3, 0.5, 1)], Size(5, 0.5)
    else:
        # Of the one that is stored, as many pages as a chunk has samples.
        node, stored, pages = "crowd-16", "exclusive", {"crowd-16": 20, _SMALL: 5, "exclusive": 120}
        growing, many = [Size(100, 5, 6), Size(300, 5, 12), Size(1000, 10, 35)], Size(10_000, 15)
    lines = {name: recorded(name, count) for name, count in pages.items()}
    read = sizes.read_by_rules()
    frames = {name: [frame(only(page, read)) for page in lines[name]] for name in (node, _SMALL)}
    growth = [sizes.measured(size, frames[node]) for size in growing]
    fits = {key: _fit(growth, key) for key in _GROWING}
    extrapolated = {key: math.exp(start + power * math.log(FARTHEST)) for key, (power, start) in fits.items()}
    return {
        "growth": growth,
        "exponents": {key: power for key, (power, _) in fits.items()},
        "extrapolated": extrapolated | {"nodes": FARTHEST},
        "many": sizes.measured(many, frames[_SMALL]),
        "disk": _on_disk(lines[stored]),
        "processors": f"{os.cpu_count()} processors",
    }


def _fit(fleets: Sequence[Mapping[str, float]], key: str) -> tuple[float, float]:
    """Fit a power of the number of nodes to a cost; return it, and the intercept in logarithms."""
    pairs = [(math.log(fleet["nodes"]), math.log(max(fleet[key], 1e-9))) for fleet in fleets]
    return statistics.linear_regression(*zip(*pairs, strict=True))


def _on_disk(pages: Sequence[Lines]) -> dict[str, Any]:
    """Import pages of a node as if scraped every 15 s; measure the bytes of a series and of a sample.

    As many pages as a chunk has samples (120) give what a sample takes in the long run.
    """
    # On the hour of a block, so that one block has them all.
    start = int(time.time()) // 7200 * 7200 - 7200
    samples = [
        f"{line} {start + turn * INTERVAL}"
        for turn, page in enumerate(pages)
        for line in page
        if not line.startswith("#")
    ]
    with tempfile.TemporaryDirectory(prefix="fleet-") as name:
        create_blocks(samples, Path(name))
        sizes = {
            part: sum(file.stat().st_size for file in Path(name, "data").glob(f"*/{pattern}"))
            for part, pattern in (("index", "index"), ("chunks", "chunks/*"))
        }
    series = len(samples) / len(pages)
    return {
        "series": round(series),
        "index_per_series": sizes["index"] / series,
        "chunks_per_sample": sizes["chunks"] / len(samples),
    }


def markdown(figures: Figures, texts: Mapping[str, str]) -> str:
    """Return what is below the heading of the section; ``texts`` are those of TEXTS, by their names."""
    largest, disk = figures["growth"][-1], figures["disk"]
    numbers = {
        "nodes": largest["nodes"],
        "processors": figures["processors"],
        "made": largest["made"] / largest["nodes"],
        "chunks": disk["chunks_per_sample"],
        "index": disk["index_per_series"],
        "series": disk["series"],
        "day": disk["chunks_per_sample"] * disk["series"] * 86400 / INTERVAL / 1e6,
    }
    tables = {"growth": _growth(figures), "groups": _groups(largest)}
    parts = [part for name, text in texts.items() for part in (text.format(**numbers), tables.get(name))]
    return "\n\n".join(filter(None, parts)) + "\n"


def _growth(figures: Figures) -> str:
    columns: Mapping[str, tuple[str, Spell]] = {
        "series": ("series", "{:.0f}".format),
        "memory": ("resident", _gigabytes),
        "live": ("live", _gigabytes),
        "scraping": ("scraping", "{:.2f} cores".format),
        "memory, rules too": ("resident_with_rules", _gigabytes),
        "all rules once": ("rules_cpu", "{:.1f} s".format),
        "rules": ("rules_busy", "{:.2f} cores".format),
    }

    def row(name: str, fleet: Figures) -> list[str]:
        return [name, *(spell(fleet[key]) if key in fleet else "" for key, spell in columns.values())]

    rows = [row(f"{fleet['nodes']}", fleet) for fleet in figures["growth"]]
    rows += [
        ["power", *(f"{figures['exponents'][key]:.2f}" for key, _ in columns.values())],
        row(f"{figures['extrapolated']['nodes']}, extrapolated", figures["extrapolated"]),
        row(f"{figures['many']['nodes']} of one GPU", figures["many"]),
    ]
    return table(["nodes", *columns], rows)


def _groups(fleet: Figures) -> str:
    rows = [
        (
            name.removeprefix("gpuslice-"),
            f"{group['interval']} s",
            f"{group['seconds']:.2f} s",
            f"{group['seconds'] / group['interval']:.1%}",
        )
        for name, group in fleet["groups"].items()
    ]
    return table(("group", "every", "evaluation", "of its interval"), rows)


def _gigabytes(value: float) -> str:
    return f"{value / 1e9:.2f} GB"
