"""The results as Markdown: ratios first, then what was measured."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.markdown import MIB, table
from benchmarks.side_by_side.measures import SCRAPERS, SLOW_MICROSECONDS
from benchmarks.side_by_side.programs import NVITOP, OURS

Figures = Mapping[str, Any]
Value = Callable[[Figures], float]

# Compared as ratios, of which a larger one is better for us.
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
_ROWS: Sequence[tuple[str, Value, str]] = (
    ("processor time of a cycle, ms", lambda its: its["idle"]["cpu_ms_a_cycle"], ".1f"),
    ("share of a processor, unscraped", lambda its: its["idle"]["cpu_share"], ".1%"),
    ("calls into the driver in a cycle", lambda its: its["idle"]["calls_a_cycle"], ".0f"),
    ("field values in them", lambda its: its["idle"]["fields_a_cycle"], ".0f"),
    ("calls into the driver in a minute", lambda its: its["idle"]["calls_a_minute"], ".0f"),
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
    ("resident memory after start, MiB", lambda its: its["young"]["resident"] / MIB, ".0f"),
    ("after two minutes, MiB", lambda its: its["old"]["resident"] / MIB, ".0f"),
    ("of it its own, MiB", lambda its: its["old"]["private"] / MIB, ".0f"),
    ("threads", lambda its: its["old"]["threads"], ".0f"),
    ("start to first page, s", lambda its: its["first_page_s"], ".1f"),
    ("of a processor, s", lambda its: its["first_page_cpu_s"], ".2f"),
)


def markdown(results: Figures) -> str:
    """Return what is below the heading of the section."""
    nodes = results["nodes"]
    ratios = [
        [name, *(_ratio(node["programs"], value) for node in nodes.values())] for name, value in _RATIOS
    ]
    parts = [
        f"### {NVITOP} against ours, as ratios",
        f"Above 1, {NVITOP} has or takes more than ours.",
        table(["", *nodes], ratios),
    ]
    for name, node in nodes.items():
        parts += [f"### {name}", _measured(node["programs"])]
    versions = [
        f"- {name}: {', '.join(packages) or 'this tree'}" for name, packages in results["versions"].items()
    ]
    return "\n\n".join([*parts, "### Installed", "\n".join(versions)]) + "\n"


def _ratio(programs: Figures, value: Value) -> str:
    ours, theirs = value(programs[OURS]), value(programs[NVITOP])
    return f"{theirs / ours:#.2g}".rstrip(".") if ours and math.isfinite(theirs / ours) else "-"


def _measured(programs: Figures) -> str:
    def spelled(number: float, form: str) -> str:
        return format(number, form) if math.isfinite(number) else "-"

    rows = [[name, *(spelled(value(its), form) for its in programs.values())] for name, value, form in _ROWS]
    return table(["", *programs], rows)
