"""The targets, and whether they are met."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from benchmarks.markdown import MIB, Results
from benchmarks.nodes import NODES
from benchmarks.polls import above, client, share
from benchmarks.side_by_side.driver import MIG, WHOLE
from benchmarks.side_by_side.programs import GPU_EXPORTER, NO_BINARY, NVITOP, OURS, SLOWER

MOST_ABOVE = 1.0
LEAST_CLIENT = 10.0
MOST_SCRAPE = 2.0
MOST_SHARE = 0.005
MOST_CLOSED, MOST_OPENED = 60, 80  # MiB
# A smaller growth in an hour may be the noise of the allocator.
MOST_SLOPE = 1  # MiB
MOST_EXPONENT = 1.1
# A cycle as a ratio to that of nvitop-exporter, which joins no pods, on a node of whole GPUs and on others;
# its scrape as a ratio to ours; CPU time as a ratio to that of nvidia_gpu_exporter, on a node of whole GPUs.
MOST_CYCLE, MOST_CYCLE_OF_PARTS, LEAST_FASTER, MOST_SHARE_OF_GPU_EXPORTER = 1.0, 0.2, 10.0, 1.0
# At a poll every 5 s, by node; and the page in kB.
MOST_CALLS = {WHOLE.name: 2200, MIG.name: 4000}
MOST_PAGE = {(MIG.name, "bytes"): 450, (MIG.name, "gzip"): 30}
# The target for the share of a core is set for this node.
SHARE_NODE = "mig"
# How a value and its maximum are written.
_UNITS = {
    "x": ("{:.2f} x", "<= {:g} x"),
    "MiB": ("{:.1f} MiB", "<= {:g} MiB"),
    "kB": ("{:.0f} kB", "<= {:g} kB"),
    "": ("{:.0f}", "<= {:g}"),
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
        yield from _beside(node, figures["programs"])


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


def _beside(node: str, programs: Mapping[str, Mapping[str, Any]]) -> Iterator[Verdict]:
    """Judge ours, which joins pods, against others on one node, and what it asks of the driver there."""
    ours, theirs = (programs[name] for name in (OURS, NVITOP))
    most = MOST_CYCLE if node == WHOLE.name else MOST_CYCLE_OF_PARTS
    cycles = (program["idle"]["cpu_ms_a_cycle"] for program in (ours, theirs))
    yield _ratio(f"processor of a cycle against {NVITOP}", node, cycles, "{:.1f} ms", most)
    scrape, scrape_theirs = (program["scraped"]["p50_ms"] for program in (ours, theirs))
    faster = scrape_theirs / scrape if scrape else math.nan
    found = f"{faster:.1f} x as fast ({scrape:.1f} ms, theirs {scrape_theirs:.1f} ms)"
    met = None if math.isnan(faster) else faster >= LEAST_FASTER
    yield Verdict(f"scrape against {NVITOP}, p50", node, found, f">= {LEAST_FASTER:g} x as fast", met)
    if node == WHOLE.name:
        yield from _against_gpu_exporter(node, programs)
    if (calls := MOST_CALLS.get(node)) is not None:
        yield _at_most(
            "driver calls in a minute", node, programs[SLOWER]["idle"]["calls_a_minute"], calls, ""
        )
    for (where, key), size in MOST_PAGE.items():
        if where == node:
            yield _at_most(f"page, {key}", node, programs[SLOWER]["page"][key] / 1000, size, "kB")


def _against_gpu_exporter(node: str, programs: Mapping[str, Mapping[str, Any]]) -> Iterator[Verdict]:
    """Judge the CPU time of ours against that of nvidia_gpu_exporter, both at a poll every 5 s."""
    for words, key in (("unscraped", "idle"), ("scraped every 15 s", "now_and_then")):
        target = f"processor against nvidia_gpu_exporter, {words}"
        if GPU_EXPORTER in programs:
            shares = (programs[name][key]["cpu_share"] for name in (SLOWER, GPU_EXPORTER))
            yield _ratio(target, node, shares, "{:.2%}", MOST_SHARE_OF_GPU_EXPORTER)
        else:
            yield Verdict(target, node, NO_BINARY, f"<= {MOST_SHARE_OF_GPU_EXPORTER:g} x", None)


def _ratio(target: str, node: str, values: Iterable[float], form: str, most: float) -> Verdict:
    """Judge the ratio of ours to theirs."""
    ours, theirs = values
    ratio = ours / theirs if theirs else math.nan
    found = f"{ratio:.2f} x ({form.format(ours)}, theirs {form.format(theirs)})"
    return Verdict(target, node, found, f"<= {most:g} x", None if math.isnan(ratio) else ratio <= most)
