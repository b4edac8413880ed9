"""How cost grows with the number of holders."""

import math
import statistics
from typing import Any

from benchmarks.effort import Effort
from benchmarks.memory import fake_memory
from benchmarks.running import subject

_WARM, _TURNS = 2, 3
MEASURES = ("poll", "page", "plain_bytes", "resident")
"""Seconds of a processor for a poll and for a page, the bytes of that, and the bytes of memory."""


async def measure(_name: str, effort: Effort) -> dict[str, Any]:
    """Measure nodes of ever more holders; ``exponents`` are by what power cost grows with them."""
    nodes = [await _node(holders) for holders in effort.holders]
    return {"nodes": nodes, "exponents": {what: exponent(nodes, what) for what in MEASURES}}


async def _node(holders: int) -> dict[str, float]:
    name = f"crowd-{holders}"
    fake = await fake_memory(name, _WARM + 3 * _TURNS)
    async with subject("by-hand", name) as program:
        await program.ask("poll", times=_WARM)
        polled = [await program.ask("poll", times=2) for _ in range(_TURNS)]
        rendered = await program.ask("render", times=_TURNS)
        taken = await program.ask("usage")
    return {
        "holders": rendered["holders"],
        "poll": min(statistics.mean(each["poll"]) for each in polled),
        "page": min(rendered["page"]),
        "plain_bytes": rendered["plain_bytes"],
        "gzip_bytes": rendered["gzip_bytes"],
        "resident": taken["resident"] - fake,
    }


def exponent(nodes: list[dict[str, float]], what: str) -> float:
    """Fit a power to what holders add to the cost of the smallest node, where they add most: its upper half.

    What a node costs without holders would make any growth look flat.
    """
    least = nodes[0]
    pairs = [
        (math.log(node["holders"] - least["holders"]), math.log(node[what] - least[what]))
        for node in nodes[len(nodes) // 2 :]
        if node[what] > least[what]
    ]
    if len(pairs) < 2:
        return 0.0
    return statistics.linear_regression(*zip(*pairs, strict=True)).slope
