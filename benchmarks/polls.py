"""What a poll and a page cost, next to the least that could be done, and by the number of holders."""

import math
import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from benchmarks.bench import POLL_SECONDS
from benchmarks.markdown import MIB, Column, Results, kilobytes, milliseconds, per_node, table
from benchmarks.memory import fake_memory
from benchmarks.processes import Process, subject

# The first polls fill what the exporter keeps from one poll to the next.
_WARM_POLLS, _WARM_GROWTH_POLLS = 3, 2
_HOLDERS = 10, 30, 100, 300, 1000, 2000, 5000
GROWING = "poll", "page", "plain_bytes", "resident"
"""What grows with the holders: CPU seconds of a poll and of a page, bytes of that page, bytes of memory."""


def measure(node: str, *, quick: bool) -> dict[str, Any]:
    """Measure the polls of a node, in CPU seconds, and the driver calls of a minute.

    Each time is the mean of a turn, and the least of all turns: the machine may have other work.
    """
    turns, polls = (1, 1) if quick else (20, 5)
    least: dict[str, float] = {}
    with subject("by-hand", node) as program:
        program.ask("poll", times=_WARM_POLLS)
        calls = program.ask("usage")["calls"]
        program.ask("poll", times=round(60 / POLL_SECONDS))
        calls_a_minute = program.ask("usage")["calls"] - calls
        for _ in range(turns):
            polled, bare = program.ask("poll", times=polls), program.ask("bare", times=polls)
            rendered = program.ask("render", times=polls)
            figures = {"poll": polled, "calls": [bare.pop("calls")]} | rendered
            figures |= {f"bare_{kind}": times for kind, times in bare.items()}
            for key, values in figures.items():
                value = statistics.mean(values) if isinstance(values, list) else values
                least[key] = min(value, least.get(key, value))
    return least | {"calls_a_minute": calls_a_minute}


def bare(polls: Mapping[str, float]) -> float:
    """Return the seconds of the bare calls of a poll to driver and kubelet."""
    return polls["bare_driver"] + polls["bare_kubelet"]


def above(polls: Mapping[str, float]) -> float:
    """Return the work of a poll above its bare calls, as a ratio to them."""
    return polls["poll"] / bare(polls) - 1


def above_binding(polls: Mapping[str, float]) -> float:
    """Return the same for a driver that takes no time: what is left of its calls is the binding."""
    faked = polls["bare_driver"] - polls["bare_binding"]
    return (polls["poll"] - faked) / (bare(polls) - faked) - 1


def share(polls: Mapping[str, float]) -> float:
    """Return the share of a core that a poll every 5 s takes, without the time inside the fake driver."""
    return (polls["poll"] - polls["bare_driver"] + polls["bare_binding"]) / POLL_SECONDS


def client(polls: Mapping[str, float]) -> float:
    """Return the time of a custom collector of prometheus_client as a ratio to that of the exposition."""
    return polls["client"] / polls["native"]


def poll_table(results: Results) -> str:
    """Return the table of a poll."""
    columns: dict[str, Column] = {
        "above the bare calls": lambda polls: f"{above(polls):.2f} x",
        "with a driver that takes no time": lambda polls: f"{above_binding(polls):.2f} x",
        "poll": milliseconds("poll"),
        "bare calls": lambda polls: f"{bare(polls) * 1e3:.1f} ms",
        "of it driver": lambda polls: f"{polls['calls']:.0f} calls, {polls['bare_driver'] * 1e3:.1f} ms",
        "of that in the binding": milliseconds("bare_binding"),
        "of it kubelet": milliseconds("bare_kubelet"),
        "bare /proc": milliseconds("bare_files"),
        "of a core, without the driver": lambda polls: f"{share(polls):.2%}",
        "driver calls in a minute": lambda polls: f"{polls['calls_a_minute']}",
    }
    return per_node(results, "polls", columns)


def page_table(results: Results) -> str:
    """Return the table of a page."""
    columns: dict[str, Column] = {
        "prometheus_client to ours": lambda polls: f"{client(polls):.1f} x",
        "page": milliseconds("page"),
        "gzip": milliseconds("gzip"),
        "holders": lambda polls: f"{polls['holders']:.0f}",
        "series": lambda polls: f"{polls['samples']:.0f}",
        "bytes": kilobytes("plain_bytes"),
        "compressed": kilobytes("gzip_bytes"),
    }
    return per_node(results, "polls", columns)


def measure_growth(_node: str, *, quick: bool) -> dict[str, Any]:
    """Measure nodes of ever more holders; ``exponents`` are the powers of that number by which cost grows.

    All run at once and have turns, and the least of these counts: a machine that is slower for a while would
    bend the curve.
    """
    holders, turns = ((2, 4, 6), 1) if quick else (_HOLDERS, 8)
    fakes = [fake_memory(f"crowd-{count}", _WARM_GROWTH_POLLS + 3 * turns) for count in holders]
    with ExitStack() as stack:
        programs = [stack.enter_context(subject("by-hand", f"crowd-{count}")) for count in holders]
        for program in programs:
            program.ask("poll", times=_WARM_GROWTH_POLLS)
        by_turn = [[_turn(program) for program in programs] for _ in range(turns)]
        resident = [program.memory().resident - fake for program, fake in zip(programs, fakes, strict=True)]
    nodes = [
        {key: min(turn[key] for turn in of_node) for key in of_node[0]} | {"resident": memory}
        for of_node, memory in zip(zip(*by_turn, strict=True), resident, strict=True)
    ]
    return {"nodes": nodes, "exponents": {key: exponent(nodes, key) for key in GROWING}}


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


def growth_table(figures: Mapping[str, Any]) -> str:
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
    powers = ("power", *(f"{figures['exponents'][key]:.2f}" for key in GROWING))
    return table(("holders", "poll", "page", "bytes", "memory"), [*rows, powers])
