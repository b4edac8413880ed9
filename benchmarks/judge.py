"""What was aimed at, and whether it is met."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from benchmarks.nodes import NODES
from benchmarks.side_by_side_parts.programs import NVITOP, OURS
from benchmarks.subject import POLL_SECONDS

Results = Mapping[str, Mapping[str, Any]]
"""By the name of the measure and of the node, as in ``polls-mig``; ``growth`` and others are of none alone.

What could not be measured stands under ``missing``, by its name, with the reason.
"""

MIB = 1 << 20
MOST_ABOVE = 1.0
LEAST_CLIENT = 10.0
MOST_SCRAPE = 2.0
MOST_SHARE = 0.005
MOST_CLOSED, MOST_OPENED = 60 * MIB, 80 * MIB
# What is grown by less in an hour may be the noise of the allocator.
MOST_SLOPE = 1 * MIB
MOST_EXPONENT = 1.1
# Of what nvitop-exporter takes for a cycle, without pods; and how often as fast as its scrape ours is to be.
MOST_CYCLE, LEAST_FASTER = 1.0, 10.0
# The node that the share of a core is aimed at.
SHARE_NODE = "mig"


class Verdict(NamedTuple):
    """A target, the node it is about ("" for all), what was found and what was aimed at, in words.

    ``met`` is None where what was found is too uncertain to tell.
    """

    target: str
    node: str
    found: str
    aim: str
    met: bool | None


def verdicts(results: Results) -> Iterator[Verdict]:
    """Judge all that was measured; what was not measured is left out."""
    for node in NODES:
        polls = results.get(f"polls-{node}")
        if polls is not None:
            yield from _of_polls(node, polls)
        scrapes = results.get(f"scrapes-{node}")
        if scrapes is not None:
            yield from _of_scrapes(node, scrapes)
        memory = results.get(f"memory-{node}")
        if memory is not None:
            yield from _of_memory(node, memory)
    growth = results.get("growth")
    if growth is not None:
        for what, power in growth["exponents"].items():
            met = power <= MOST_EXPONENT
            yield Verdict(f"growth of {what}", "", f"{power:.2f}", f"<= {MOST_EXPONENT}", met)
    for node, found in results.get("side-by-side", {"nodes": {}})["nodes"].items():
        yield from _beside(node, found["programs"])


def bare(polls: Mapping[str, float]) -> float:
    """Return what the bare calls of a poll to driver and kubelet take, in seconds."""
    return polls["bare_driver"] + polls["bare_kubelet"]


def above(polls: Mapping[str, float]) -> float:
    """Return how much a poll takes above its bare calls, as a ratio to them."""
    return polls["poll"] / bare(polls) - 1


def above_binding(polls: Mapping[str, float]) -> float:
    """Return the same for a driver that takes no time at all: what is left of its calls is the binding."""
    faked = polls["bare_driver"] - polls["bare_binding"]
    return (polls["poll"] - faked) / (bare(polls) - faked) - 1


def share(polls: Mapping[str, float]) -> float:
    """Return the share of a core that polls take every 5 s, without the time inside the faked driver."""
    return (polls["poll"] - polls["bare_driver"] + polls["bare_binding"]) / POLL_SECONDS


def client(polls: Mapping[str, float]) -> float:
    """Return how often as fast the exposition is as a custom collector of prometheus_client."""
    return polls["client"] / polls["native"]


def _of_polls(node: str, polls: Mapping[str, float]) -> Iterator[Verdict]:
    over, faster = above(polls), client(polls)
    yield Verdict("work above bare calls", node, f"{over:.2f} x", f"<= {MOST_ABOVE:g} x", over <= MOST_ABOVE)
    met = faster >= LEAST_CLIENT
    yield Verdict("against prometheus_client", node, f"{faster:.1f} x", f">= {LEAST_CLIENT:g} x", met)
    if node == SHARE_NODE:
        taken = share(polls)
        aim = f"< {MOST_SHARE:.1%} of a core"
        yield Verdict("poll without the driver", node, f"{taken:.2%}", aim, taken < MOST_SHARE)


def _of_scrapes(node: str, scrapes: Mapping[str, Mapping[str, float]]) -> Iterator[Verdict]:
    for count, found in scrapes.items():
        ratio = found["ratio"]
        what = f"scrape against bare aiohttp, {count} at a time"
        yield Verdict(what, node, f"{ratio:.2f} x", f"<= {MOST_SCRAPE:g} x", ratio <= MOST_SCRAPE)


def _of_memory(node: str, memory: Mapping[str, float]) -> Iterator[Verdict]:
    for what, key, most in (
        ("memory after an hour", "closed", MOST_CLOSED),
        ("memory with pages open", "opened", MOST_OPENED),
    ):
        found = memory[key]
        yield Verdict(what, node, f"{found / MIB:.1f} MiB", f"<= {most // MIB} MiB", found <= most)
    slope, twice = memory["slope"], 2 * memory["slope_error"]
    sure = abs(slope - MOST_SLOPE) > twice
    told = f"{slope / MIB:.1f} ± {twice / MIB:.1f} MiB"
    yield Verdict(
        "growth in an hour", node, told, f"<= {MOST_SLOPE // MIB} MiB", slope <= MOST_SLOPE if sure else None
    )


def _beside(node: str, programs: Mapping[str, Mapping[str, Any]]) -> Iterator[Verdict]:
    """Judge what ours takes, with its pods, against nvitop-exporter on one node; both poll each second."""
    ours, other = programs[OURS], programs[NVITOP]
    mine, theirs = ours["idle"]["cpu_ms_a_cycle"], other["idle"]["cpu_ms_a_cycle"]
    more = _ratio(mine, theirs)
    told, met = f"{more:.2f} x ({mine:.1f} ms, theirs {theirs:.1f} ms)", more <= MOST_CYCLE
    what = f"processor of a cycle against {NVITOP}"
    yield Verdict(what, node, told, f"<= {MOST_CYCLE:g} x", _unless_nan(more, met))
    mine, theirs = ours["scraped"]["p50_ms"], other["scraped"]["p50_ms"]
    faster = _ratio(theirs, mine)
    told, met = f"{faster:.1f} x as fast ({mine:.1f} ms, theirs {theirs:.1f} ms)", faster >= LEAST_FASTER
    what = f"scrape against {NVITOP}, p50"
    yield Verdict(what, node, told, f">= {LEAST_FASTER:g} x as fast", _unless_nan(faster, met))


def _ratio(value: float, to: float) -> float:
    return value / to if to else math.nan


def _unless_nan(value: float, met: bool) -> bool | None:
    return None if math.isnan(value) else met
