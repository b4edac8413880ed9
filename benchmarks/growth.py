"""How cost grows with the number of holders."""

import math
import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from benchmarks.markdown import MIB
from benchmarks.markdown import table as markdown_table
from benchmarks.memory import fake_memory
from benchmarks.processes import Process, subject

_WARM_POLLS = 2
_HOLDERS = 10, 30, 100, 300, 1000, 2000, 5000
MEASURES = "poll", "page", "plain_bytes", "resident"
"""CPU seconds of a poll and of a page, bytes of that page, and bytes of memory."""


def measure(_node: str, *, quick: bool) -> dict[str, Any]:
    """Measure nodes of ever more holders; ``exponents`` are the powers of that number by which cost grows.

    All run at once and have turns, and the least of these counts: a machine that is slower for a while would
    bend the curve.
    """
    holders, turns = ((2, 4, 6), 1) if quick else (_HOLDERS, 8)
    fakes = [fake_memory(f"crowd-{count}", _WARM_POLLS + 3 * turns) for count in holders]
    with ExitStack() as stack:
        programs = [stack.enter_context(subject("by-hand", f"crowd-{count}")) for count in holders]
        for program in programs:
            program.ask("poll", times=_WARM_POLLS)
        by_turn = [[_turn(program) for program in programs] for _ in range(turns)]
        resident = [program.memory().resident - fake for program, fake in zip(programs, fakes, strict=True)]
    nodes = [
        {key: min(turn[key] for turn in of_node) for key in of_node[0]} | {"resident": memory}
        for of_node, memory in zip(zip(*by_turn, strict=True), resident, strict=True)
    ]
    return {"nodes": nodes, "exponents": {key: exponent(nodes, key) for key in MEASURES}}


def _turn(program: Process) -> dict[str, float]:
    polled, rendered = program.ask("poll", times=2), program.ask("render", times=1)
    sizes = {key: rendered[key] for key in ("holders", "plain_bytes")}
    return sizes | {"poll": statistics.mean(polled), "page": rendered["page"][0]}


def exponent(nodes: Sequence[Mapping[str, float]], key: str) -> float:
    """Fit a power to what holders add to the cost of the smallest node, in the upper half of the nodes.

    The cost of a node without holders would make any growth look flat.
    """
    least = nodes[0]
    pairs = [
        (math.log(node["holders"] - least["holders"]), math.log(node[key] - least[key]))
        for node in nodes[len(nodes) // 2 :]
        if node[key] > least[key]
    ]
    if len(pairs) < 2:
        return 0.0
    return statistics.linear_regression(*zip(*pairs, strict=True)).slope


def table(figures: Mapping[str, Any]) -> str:
    """Return the table of nodes, with the powers as its last row."""
    rows = [
        (
            node["holders"],
            f"{node['poll'] * 1e3:.0f} ms",
            f"{node['page'] * 1e3:.1f} ms",
            f"{node['plain_bytes'] / 1e3:.0f} kB",
            f"{node['resident'] / MIB:.0f} MiB",
        )
        for node in figures["nodes"]
    ]
    powers = ("power", *(f"{figures['exponents'][key]:.2f}" for key in MEASURES))
    return markdown_table(("holders", "poll", "page", "bytes", "memory"), [*rows, powers])
