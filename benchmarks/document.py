"""The page docs/performance.md: what was measured, and whether it meets the targets."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import fleet, memory, polls, scrapes, side_by_side
from benchmarks.markdown import MIB, UNMEASURED, Results, table
from benchmarks.nodes import NODES
from benchmarks.side_by_side.driver import MIG, WHOLE
from benchmarks.side_by_side.programs import GPU_EXPORTER, NO_BINARY, NVITOP, OURS, SLOWER

_TEXTS = Path(__file__).with_name("performance.txt")
_SIGNS = {True: "met", False: "**not met**", None: "uncertain"}
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


def texts(file: Path = _TEXTS) -> dict[str, str]:
    """Return the texts of a file by their names, in their order: each is below its name in brackets."""
    sections = re.findall(r"^\[(\w+)\]\n(.*?)\n(?=\[|\Z)", file.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return {name: text.strip() for name, text in sections}


def page(results: Results) -> str:
    """Return the page: the texts of performance.txt, each with its table of what was measured."""
    tables = {
        "machine": table(("", "measured on"), results.get("machine", {}).items()),
        "targets": _targets(results),
        "polls": polls.poll_table(results),
        "exposition": polls.page_table(results),
        "scrapes": scrapes.table(results),
        "memory": memory.table(results),
        "libraries": _section(results, "libraries", memory.library_table),
        "startup": scrapes.start_table(results),
        "growth": _section(results, "growth", polls.growth_table),
        "side_by_side": _section(results, "side-by-side", side_by_side.markdown),
        "fleet": _section(results, "fleet", lambda figures: fleet.markdown(figures, texts(fleet.TEXTS))),
    }
    parts = [part.strip() for name, text in texts().items() for part in (text, tables.get(name, ""))]
    return "\n\n".join(filter(None, parts)) + "\n"


def _section(results: Results, name: str, to_table: Callable[[Mapping[str, Any]], str]) -> str:
    """Return the table of one measure, or the reason why it could not be made."""
    reason = results.get("missing", {}).get(name)
    if name not in results:
        return UNMEASURED if reason is None else f"This was not measured: {reason}"
    written = to_table(results[name])
    if reason is None:
        return written
    return f"This is of an earlier run; in the last it was not measured: {reason}\n\n{written}"


def _targets(results: Results) -> str:
    rows = [
        (verdict.target, verdict.node or "all", verdict.found, verdict.aim, _SIGNS[verdict.met])
        for verdict in sorted(verdicts(results), key=lambda verdict: verdict.target)
    ]
    return table(("target", "node", "found", "aim", ""), rows)


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
        if (polled := results.get(f"polls-{node}")) is not None:
            yield _at_most("work above bare calls", node, polls.above(polled), MOST_ABOVE, "x")
            faster, aim = polls.client(polled), f">= {LEAST_CLIENT:g} x"
            yield Verdict("against prometheus_client", node, f"{faster:.1f} x", aim, faster >= LEAST_CLIENT)
            if node == SHARE_NODE:
                yield _at_most("poll without the driver", node, polls.share(polled), MOST_SHARE, "of a core")
        for count, figures in results.get(f"scrapes-{node}", {}).items():
            target = f"scrape against bare aiohttp, {count} at a time"
            yield _at_most(target, node, figures["ratio"], MOST_SCRAPE, "x")
        if (figures := results.get(f"memory-{node}")) is not None:
            yield from _of_memory(node, figures)
    for what, power in results.get("growth", {"exponents": {}})["exponents"].items():
        yield _at_most(f"growth of {what}", "", power, MOST_EXPONENT, "power")
    for node, figures in results.get("side-by-side", {"nodes": {}})["nodes"].items():
        yield from _beside(node, figures["programs"])


def _at_most(target: str, node: str, value: float, most: float, unit: str) -> Verdict:
    """Judge a value that may be ``most``."""
    found, aim = _UNITS[unit]
    return Verdict(target, node, found.format(value), aim.format(most), value <= most)


def _of_memory(node: str, figures: Mapping[str, float]) -> Iterator[Verdict]:
    for target, key, most in (
        ("memory after an hour", "closed", MOST_CLOSED),
        ("memory with pages open", "opened", MOST_OPENED),
    ):
        yield _at_most(target, node, figures[key] / MIB, most, "MiB")
    slope, twice = figures["slope"] / MIB, 2 * figures["slope_error"] / MIB
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
