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
MOST_CLOSED, MOST_OPENED = 60 * MIB, 80 * MIB
# A smaller growth in an hour may be the noise of the allocator.
MOST_SLOPE = 1 * MIB
MOST_EXPONENT = 1.1
# A cycle as a ratio to that of nvitop-exporter, which joins no pods; its scrape as a ratio to ours.
MOST_CYCLE, LEAST_FASTER = 1.0, 10.0
# The target for the share of a core is set for this node.
SHARE_NODE = "mig"


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
            yield from _of_polls(node, polls)
        for count, found in results.get(f"scrapes-{node}", {}).items():
            ratio = found["ratio"]
            target = f"scrape against bare aiohttp, {count} at a time"
            yield Verdict(target, node, f"{ratio:.2f} x", f"<= {MOST_SCRAPE:g} x", ratio <= MOST_SCRAPE)
        if (memory := results.get(f"memory-{node}")) is not None:
            yield from _of_memory(node, memory)
    for what, power in results.get("growth", {"exponents": {}})["exponents"].items():
        yield Verdict(f"growth of {what}", "", f"{power:.2f}", f"<= {MOST_EXPONENT}", power <= MOST_EXPONENT)
    for node, found in results.get("side-by-side", {"nodes": {}})["nodes"].items():
        yield from _against_nvitop(node, found["programs"])


def _of_polls(node: str, polls: Mapping[str, float]) -> Iterator[Verdict]:
    over, faster = above(polls), client(polls)
    yield Verdict("work above bare calls", node, f"{over:.2f} x", f"<= {MOST_ABOVE:g} x", over <= MOST_ABOVE)
    met = faster >= LEAST_CLIENT
    yield Verdict("against prometheus_client", node, f"{faster:.1f} x", f">= {LEAST_CLIENT:g} x", met)
    if node == SHARE_NODE:
        taken, aim = share(polls), f"< {MOST_SHARE:.1%} of a core"
        yield Verdict("poll without the driver", node, f"{taken:.2%}", aim, taken < MOST_SHARE)


def _of_memory(node: str, memory: Mapping[str, float]) -> Iterator[Verdict]:
    for target, key, most in (
        ("memory after an hour", "closed", MOST_CLOSED),
        ("memory with pages open", "opened", MOST_OPENED),
    ):
        resident = memory[key]
        yield Verdict(target, node, f"{resident / MIB:.1f} MiB", f"<= {most // MIB} MiB", resident <= most)
    slope, twice = memory["slope"], 2 * memory["slope_error"]
    found, aim = f"{slope / MIB:.1f} ± {twice / MIB:.1f} MiB", f"<= {MOST_SLOPE // MIB} MiB"
    met = slope <= MOST_SLOPE if abs(slope - MOST_SLOPE) > twice else None
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
