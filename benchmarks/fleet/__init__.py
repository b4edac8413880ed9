"""What a fleet costs the Prometheus that scrapes it."""

import math
import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.fleet import disk, sizes
from benchmarks.fleet.pages import frame, only, recorded
from benchmarks.fleet.sizes import Size
from benchmarks.prometheus import installed

FARTHEST = 10_000
"""The number of nodes for which growing costs are extrapolated."""

_GROWING = "series", "scraping", "resident", "live", "rules_cpu", "rules_busy", "resident_with_rules"
_SMALL = "crowd-1"


def measure(_node: str, *, quick: bool) -> dict[str, Any]:
    """Measure fleets that grow, one of many small nodes, and pages on disk; raise MissingError."""
    for program in ("prometheus", "promtool"):
        installed(program)
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
        "disk": disk.measured(lines[stored]),
        "processors": f"{os.cpu_count()} processors",
    }


def _fit(fleets: Sequence[Mapping[str, float]], key: str) -> tuple[float, float]:
    """Fit a power of the number of nodes to a cost; return it, and the intercept in logarithms."""
    pairs = [(math.log(fleet["nodes"]), math.log(max(fleet[key], 1e-9))) for fleet in fleets]
    return statistics.linear_regression(*zip(*pairs, strict=True))
