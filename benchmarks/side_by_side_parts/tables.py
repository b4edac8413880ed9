"""The results as Markdown: what is better and worse first, then what was measured, then what was asked."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.side_by_side_parts.measures import SCRAPERS, SLOW_MICROSECONDS
from benchmarks.side_by_side_parts.programs import NVITOP, OURS

_MIB = 1 << 20
Figures = Mapping[str, Any]
Value = Callable[[Figures], float]
Row = tuple[str, Value, str]

# What is compared as a ratio, more of which is better for us.
_RATIOS: Sequence[tuple[str, Value]] = (
    ("processor time of a cycle, both each second", lambda its: its["idle"]["cpu_ms_a_cycle"]),
    ("processor time of a scrape", lambda its: its["scraped"]["cpu_ms"]),
    ("time of a scrape, best", lambda its: its["scraped"]["best_ms"]),
    ("time of a scrape, median", lambda its: its["scraped"]["p50_ms"]),
    (f"processor time of a scrape, {SCRAPERS} at once", lambda its: its["crowded"]["cpu_ms"]),
    (f"time of a scrape, {SCRAPERS} at once, median", lambda its: its["crowded"]["p50_ms"]),
    ("samples on the page", lambda its: its["page"]["samples"]),
    ("calls into the driver in a cycle", lambda its: its["idle"]["calls_a_cycle"]),
    ("memory of its own after two minutes", lambda its: its["old"]["private"]),
    ("processor time to the first page", lambda its: its["first_page_cpu_s"]),
)
_ROWS: Sequence[Row] = (
    ("processor time of a cycle, ms", lambda its: its["idle"]["cpu_ms_a_cycle"], ".1f"),
    ("share of a processor, unscraped", lambda its: its["idle"]["cpu_share"], ".1%"),
    ("calls into the driver in a cycle", lambda its: its["idle"]["calls_a_cycle"], ".0f"),
    ("field values in them", lambda its: its["idle"]["fields_a_cycle"], ".0f"),
    (
        f"seconds of a cycle when each takes {SLOW_MICROSECONDS / 1000:g} ms",
        lambda its: its["slow"]["seconds_a_cycle"],
        ".1f",
    ),
    ("a scrape each second: best, ms", lambda its: its["scraped"]["best_ms"], ".1f"),
    ("median, ms", lambda its: its["scraped"]["p50_ms"], ".1f"),
    ("slowest, ms", lambda its: its["scraped"]["worst_ms"], ".1f"),
    ("processor time of a scrape, ms", lambda its: its["scraped"]["cpu_ms"], ".1f"),
    (f"{SCRAPERS} scrapers at once: best, ms", lambda its: its["crowded"]["best_ms"], ".1f"),
    ("median, ms", lambda its: its["crowded"]["p50_ms"], ".1f"),
    ("99th percentile, ms", lambda its: its["crowded"]["p99_ms"], ".1f"),
    ("processor time of a scrape, ms", lambda its: its["crowded"]["cpu_ms"], ".2f"),
    ("samples on the page", lambda its: its["page"]["samples"], ".0f"),
    ("kB of the page", lambda its: its["page"]["bytes"] / 1000, ".0f"),
    ("resident memory after start, MiB", lambda its: its["young"]["resident"] / _MIB, ".0f"),
    ("after two minutes, MiB", lambda its: its["old"]["resident"] / _MIB, ".0f"),
    ("of it its own, MiB", lambda its: its["old"]["private"] / _MIB, ".0f"),
    ("threads", lambda its: its["old"]["threads"], ".0f"),
    ("start to first page, s", lambda its: its["first_page_s"], ".1f"),
    ("of a processor, s", lambda its: its["first_page_cpu_s"], ".2f"),
)


def markdown(results: Figures) -> str:
    """Write what stands below the heading of the section."""
    nodes = results["nodes"]
    parts = [
        _machine(results["machine"]),
        f"### {NVITOP} against ours, as ratios",
        f"Above 1 {NVITOP} has or takes so many times as much as ours.",
        _ratios(nodes),
    ]
    for name, node in nodes.items():
        parts += [f"### {name}", _measured(node["programs"])]
    for name, node in nodes.items():
        parts += [f"### Asked of the pages: {name}", _asked(node["questions"])]
    for node in nodes.values():
        if "parts" in node:
            parts += ["### Where our memory goes", _memory(node["parts"])]
    parts += ["### Installed", _versions(results["versions"])]
    return "\n\n".join(parts) + "\n"


def _machine(machine: Figures) -> str:
    return (
        f"Measured on {machine['at']} on {machine['processors']} x {machine['processor']}, "
        f"{machine['system']}, Python {machine['python']}, with a load of {machine['load']:.1f} from other "
        "work. All programs ran at the same time, on the same stub of the driver's library and the same "
        "sleeping processes, so ratios say more than milliseconds. No GPU was there."
    )


def _ratios(nodes: Figures) -> str:
    rows = [[what, *(_ratio(node["programs"], value) for node in nodes.values())] for what, value in _RATIOS]
    return _grid(["", *nodes], rows)


def _ratio(programs: Figures, value: Value) -> str:
    ours, theirs = value(programs[OURS]), value(programs[NVITOP])
    return f"{theirs / ours:#.2g}".rstrip(".") if ours and math.isfinite(theirs / ours) else "-"


def _measured(programs: Figures) -> str:
    rows = [[what, *(_spelled(value(its), form) for its in programs.values())] for what, value, form in _ROWS]
    return _grid(["", *programs], rows)


def _spelled(value: float, form: str) -> str:
    return format(value, form) if math.isfinite(value) else "-"


def _asked(questions: Figures) -> str:
    programs = list(next(iter(questions.values())))
    return _grid(["", *programs], [[question, *answers.values()] for question, answers in questions.items()])


def _memory(parts: Sequence[tuple[str, int, int]]) -> str:
    rows = [[step, f"{resident / _MIB:.1f}", f"{private / _MIB:.1f}"] for step, resident, private in parts]
    return _grid(["", "resident, MiB", "of it its own, MiB"], rows)


def _versions(versions: Figures) -> str:
    return "\n".join(f"- {name}: {', '.join(packages) or 'this tree'}" for name, packages in versions.items())


def _grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
