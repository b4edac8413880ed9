"""This exporter and what a user would run instead: on the same driver and the same node, at the same time.

It needs Linux, root and gcc, and takes a quarter of an hour. Other programs are installed below build/ the
first time, which needs a network; the variable GPU_EXPORTER names the binary of nvidia_gpu_exporter, without
which it is left out. The driver is a stub that all of them load; no GPU is there.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.side_by_side import measures
from benchmarks.side_by_side.driver import MIG, SLICES, SMALLEST, WHOLE, Control, Layout, compile_driver
from benchmarks.side_by_side.node import running_node
from benchmarks.side_by_side.programs import (
    Program,
    Running,
    all_programs,
    install,
    started_program,
)

_SETTLE_SECONDS = 3.0
_SCRAPE_SECONDS = 15.0
Programs = Callable[[dict[str, str]], Sequence[Program]]


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
