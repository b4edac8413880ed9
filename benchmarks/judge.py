"""The targets, and whether they are met."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from benchmarks.markdown import MIB, Results
from benchmarks.nodes import NODES
from benchmarks.polls import above, client, share
from benchmarks.side_by_side.programs import NVITOP, OURS

MOST_ABOVE = 1.0
LEAST_CLIENT = 10.0
MOST_SCRAPE = 2.0
MOST_SHARE = 0.005
MOST_CLOSED, MOST_OPENED = 60, 80  # MiB
# A smaller growth in an hour may be the noise of the allocator.
MOST_SLOPE = 1  # MiB
MOST_EXPONENT = 1.1
# A cycle as a ratio to that of nvitop-exporter, which joins no pods; its scrape as a ratio to ours.
MOST_CYCLE, LEAST_FASTER = 1.0, 10.0
# The target for the share of a core is set for this node.
SHARE_NODE = "mig"
# How a value and its maximum are written.
_UNITS = {
    "x": ("{:.2f} x", "<= {:g} x"),
    "MiB": ("{:.1f} MiB", "<= {:g} MiB"),
    "of a core": ("{:.2%}", "< {:.1%} of a core"),
    "power": ("{:.2f}", "<= {:g}"),
}


class Verdict(NamedTuple):
    """A target, and what was found, in words."""

    target: str
    node: str  # "" for all
    found: str
    aim: str
    met: bool | None  # None if what was found is too uncertain


def verdicts(results: Results) -> Iterator[Verdict]:
    """Judge all that was measured."""
    for node in NODES:
        if (polls := results.get(f"polls-{node}")) is not None:
            yield _at_most("work above bare calls", node, above(polls), MOST_ABOVE, "x")
            faster, aim = client(polls), f">= {LEAST_CLIENT:g} x"
            yield Verdict("against prometheus_client", node, f"{faster:.1f} x", aim, faster >= LEAST_CLIENT)
            if node == SHARE_NODE:
                yield _at_most("poll without the driver", node, share(polls), MOST_SHARE, "of a core")
        for count, figures in results.get(f"scrapes-{node}", {}).items():
            target = f"scrape against bare aiohttp, {count} at a time"
            yield _at_most(target, node, figures["ratio"], MOST_SCRAPE, "x")
        if (memory := results.get(f"memory-{node}")) is not None:
            yield from _of_memory(node, memory)
    for what, power in results.get("growth", {"exponents": {}})["exponents"].items():
        yield _at_most(f"growth of {what}", "", power, MOST_EXPONENT, "power")
    for node, figures in results.get("side-by-side", {"nodes": {}})["nodes"].items():
        yield from _against_nvitop(node, figures["programs"])


def _at_most(target: str, node: str, value: float, most: float, unit: str) -> Verdict:
    """Judge a value that may be ``most``."""
    found, aim = _UNITS[unit]
    return Verdict(target, node, found.format(value), aim.format(most), value <= most)


def _of_memory(node: str, memory: Mapping[str, float]) -> Iterator[Verdict]:
    for target, key, most in (
        ("memory after an hour", "closed", MOST_CLOSED),
        ("memory with pages open", "opened", MOST_OPENED),
    ):
        yield _at_most(target, node, memory[key] / MIB, most, "MiB")
    slope, twice = memory["slope"] / MIB, 2 * memory["slope_error"] / MIB
    met = slope <= MOST_SLOPE if abs(slope - MOST_SLOPE) > twice else None
    found, aim = f"{slope:.1f} ± {twice:.1f} MiB", f"<= {MOST_SLOPE} MiB"
    yield Verdict("growth in an hour", node, found, aim, met)


def _against_nvitop(node: str, programs: Mapping[str, Mapping[str, Any]]) -> Iterator[Verdict]:
    """Judge ours, which joins pods, against nvitop-exporter on one node; both poll each second."""
    ours, theirs = (programs[name]["idle"]["cpu_ms_a_cycle"] for name in (OURS, NVITOP))
    ratio = ours / theirs if theirs else math.nan
    found = f"{ratio:.2f} x ({ours:.1f} ms, theirs {theirs:.1f} ms)"
    met = None if math.isnan(ratio) else ratio <= MOST_CYCLE
    yield Verdict(f"processor of a cycle against {NVITOP}", node, found, f"<= {MOST_CYCLE:g} x", met)
    ours, theirs = (programs[name]["scraped"]["p50_ms"] for name in (OURS, NVITOP))
    faster = theirs / ours if ours else math.nan
    found = f"{faster:.1f} x as fast ({ours:.1f} ms, theirs {theirs:.1f} ms)"
    met = None if math.isnan(faster) else faster >= LEAST_FASTER
    yield Verdict(f"scrape against {NVITOP}, p50", node, found, f">= {LEAST_FASTER:g} x as fast", met)
