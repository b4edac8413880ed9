"""This exporter and what a user would run instead: on the same driver and the same node, at the same time.

It needs Linux, root and gcc, and takes a quarter of an hour. Other programs are installed below build/ the
first time, which needs a network; the variable GPU_EXPORTER names the binary of nvidia_gpu_exporter, without
which it is left out. The driver is a stub that all of them load; no GPU is there.
"""

import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.markdown import MIB, table
from benchmarks.side_by_side import measures
from benchmarks.side_by_side.driver import MIG, SLICES, SMALLEST, WHOLE, Control, Layout, compile_driver
from benchmarks.side_by_side.measures import SCRAPERS, SLOW_MICROSECONDS
from benchmarks.side_by_side.node import running_node
from benchmarks.side_by_side.programs import (
    GPU_EXPORTER,
    NO_BINARY,
    NVITOP,
    OURS,
    Program,
    Running,
    all_programs,
    install,
    started_program,
)

_SETTLE_SECONDS = 3.0
_SCRAPE_SECONDS = 15.0
Programs = Callable[[dict[str, str]], Sequence[Program]]
Figures = Mapping[str, Any]


class _Row(NamedTuple):
    """A row of the tables; those that are compared are in the table of ratios too."""

    title: str
    unit: str
    value: Callable[[Figures], float]
    form: str
    compared: bool = False


_SLOW = f"cycle, if a call takes {SLOW_MICROSECONDS / 1000:g} ms"
_CROWD = f"{SCRAPERS} scrapes at once"
_ROWS = (
    _Row("CPU time of a cycle", "ms", lambda its: its["idle"]["cpu_ms_a_cycle"], ".1f", compared=True),
    _Row("share of a core, unscraped", "", lambda its: its["idle"]["cpu_share"], ".2%"),
    _Row("share of a core, scraped every 15 s", "", lambda its: its["now_and_then"]["cpu_share"], ".2%"),
    _Row("driver calls in a cycle", "", lambda its: its["idle"]["calls_a_cycle"], ".0f", compared=True),
    _Row("field values in them", "", lambda its: its["idle"]["fields_a_cycle"], ".0f"),
    _Row("driver calls in a minute", "", lambda its: its["idle"]["calls_a_minute"], ".0f"),
    _Row(_SLOW, "s", lambda its: its["slow"]["seconds_a_cycle"], ".1f"),
    _Row("scrape each second: best", "ms", lambda its: its["scraped"]["best_ms"], ".1f", compared=True),
    _Row("scrape each second: median", "ms", lambda its: its["scraped"]["p50_ms"], ".1f", compared=True),
    _Row("scrape each second: slowest", "ms", lambda its: its["scraped"]["worst_ms"], ".1f"),
    _Row("scrape each second: CPU time", "ms", lambda its: its["scraped"]["cpu_ms"], ".1f", compared=True),
    _Row(f"{_CROWD}: best", "ms", lambda its: its["crowded"]["best_ms"], ".1f"),
    _Row(f"{_CROWD}: median", "ms", lambda its: its["crowded"]["p50_ms"], ".1f", compared=True),
    _Row(f"{_CROWD}: 99th percentile", "ms", lambda its: its["crowded"]["p99_ms"], ".1f"),
    _Row(f"{_CROWD}: CPU time of each", "ms", lambda its: its["crowded"]["cpu_ms"], ".2f", compared=True),
    _Row("samples on the page", "", lambda its: its["page"]["samples"], ".0f", compared=True),
    _Row("page", "kB", lambda its: its["page"]["bytes"] / 1000, ".0f"),
    _Row("page, gzip", "kB", lambda its: its["page"]["gzip"] / 1000, ".0f"),
    _Row("resident memory after start", "MiB", lambda its: its["young"]["resident"] / MIB, ".0f"),
    _Row("resident memory after the run", "MiB", lambda its: its["old"]["resident"] / MIB, ".0f"),
    _Row(
        "private memory after the run", "MiB", lambda its: its["old"]["private"] / MIB, ".0f", compared=True
    ),
    _Row("threads", "", lambda its: its["old"]["threads"], ".0f"),
    _Row("start to first page", "s", lambda its: its["first_page_s"], ".1f"),
    _Row("CPU time to first page", "s", lambda its: its["first_page_cpu_s"], ".2f", compared=True),
)


def measure(_node: str, *, quick: bool, programs: Programs = all_programs) -> dict[str, Any]:
    """Measure programs on all nodes, or on one small one; raise MissingError."""
    installable = programs({})
    with tempfile.TemporaryDirectory(prefix="side-") as name:
        folder = Path(name)
        # What the machine cannot do is reported before anything is fetched.
        compile_driver(folder)
        with running_node(SMALLEST):
            pass
        for program in installable:
            install(program)
        return {
            "versions": {each.name: ", ".join(each.packages) or each.version for each in installable},
            "nodes": {
                layout.name: {"programs": _measured(layout, folder, programs, quick=quick)}
                for layout in ([SMALLEST] if quick else (WHOLE, MIG, SLICES))
            },
        }


def _measured(layout: Layout, folder: Path, programs: Programs, *, quick: bool) -> dict[str, Any]:
    """Run programs on one node, side by side, and return the figures of each."""
    # Those that poll every 5 s must poll at least once while they are watched.
    turns, seconds, scrapes, slowed = (1, 6.0, 3, 6.0) if quick else (5, 30.0, 35, 10.0)
    with running_node(layout) as node, ExitStack() as stack:
        running = {}
        for place, program in enumerate(programs(node.environment)):
            control = stack.enter_context(Control(folder / f"{place}.control", layout, node.pids))
            running[program.name] = stack.enter_context(started_program(program, folder, control))
        time.sleep(_SETTLE_SECONDS)
        young = {name: each.process.memory() for name, each in running.items()}
        idle = measures.idle(running, turns, seconds)
        now_and_then = measures.idle(running, min(turns, 2), seconds, scrape_every=_SCRAPE_SECONDS)
        scraped = measures.scraped(running, idle, scrapes)
        crowded = measures.crowded(running, idle)
        slow = measures.slowed(running, idle, slowed)
        return {
            name: {
                "first_page_s": each.first_page,
                "first_page_cpu_s": each.first_cpu,
                "idle": idle[name],
                "now_and_then": now_and_then[name],
                "scraped": scraped[name],
                "crowded": crowded[name],
                "slow": slow[name],
                "young": young[name]._asdict(),
                "old": each.process.memory()._asdict(),
                "page": _size(each),
            }
            for name, each in running.items()
        }


def _size(program: Running) -> dict[str, int]:
    page, compressed = program.page(), program.page("gzip")
    samples = sum(bool(line) and not line.startswith(b"#") for line in page.splitlines())
    return {"samples": samples, "bytes": len(page), "gzip": len(compressed)}


def markdown(results: Figures) -> str:
    """Return what is below the heading of the section."""
    nodes = {name: node["programs"] for name, node in results["nodes"].items()}
    ratios = [
        (row.title, *(_ratio(programs, row) for programs in nodes.values())) for row in _ROWS if row.compared
    ]
    parts = [
        f"### {NVITOP} against ours, as ratios",
        f"Above 1, {NVITOP} has or takes more than ours.",
        table(("", *nodes), ratios),
    ]
    for name, programs in nodes.items():
        rows = [
            (", ".join(filter(None, row[:2])), *(_cell(its, row) for its in programs.values()))
            for row in _ROWS
        ]
        parts += [f"### {name}", table(("", *programs), rows)]
    versions = {GPU_EXPORTER: NO_BINARY} | results["versions"]
    listed = "\n".join(f"- {name}: {version}" for name, version in versions.items())
    return "\n\n".join([*parts, "### Versions", listed]) + "\n"


def _ratio(programs: Figures, row: _Row) -> str:
    ours, theirs = row.value(programs[OURS]), row.value(programs[NVITOP])
    return f"{theirs / ours:#.2g}".rstrip(".") if ours and math.isfinite(theirs / ours) else "-"


def _cell(program: Figures, row: _Row) -> str:
    value = row.value(program)
    return format(value, row.form) if math.isfinite(value) else "-"
