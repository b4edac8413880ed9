"""This exporter and what a user would run instead: on the same driver and the same node, at the same time.

It needs Linux, root and gcc, and takes ten minutes. Other programs are installed below build/ the
first time, which needs a network. The driver is a stub that all of them load; no GPU is there.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.side_by_side import measures
from benchmarks.side_by_side.driver import Control, Layout, compile_driver
from benchmarks.side_by_side.node import running_node
from benchmarks.side_by_side.programs import (
    Program,
    all_programs,
    install,
    started_program,
)

_SETTLE_SECONDS = 3.0
LAYOUTS = (
    Layout(name="8 GPUs held whole", gpus=8, parts=1, mig=False),
    Layout(name="8 GPUs x 7 MIG devices", gpus=8, parts=7, mig=True),
    Layout(name="16 GPUs x 10 time slices", gpus=16, parts=10, mig=False),
)
SMALLEST = Layout(name="1 GPU x 2 MIG devices", gpus=1, parts=2, mig=True)
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
            "versions": {program.name: list(program.packages) for program in installable},
            "nodes": {
                layout.name: {"programs": _measured(layout, folder, programs, quick=quick)}
                for layout in ([SMALLEST] if quick else LAYOUTS)
            },
        }


def _measured(layout: Layout, folder: Path, programs: Programs, *, quick: bool) -> dict[str, Any]:
    """Run programs on one node, side by side, and return the figures of each."""
    # Those that poll every 5 s must poll at least once while they are watched.
    watched, scrapes, slowed, old = (6.0, 3, 6.0, 0.0) if quick else (60.0, 35, 10.0, 120.0)
    with running_node(layout) as node, ExitStack() as stack:
        running = {}
        for place, program in enumerate(programs(node.environment)):
            control = stack.enter_context(Control(folder / f"{place}.control", layout, node.pids))
            running[program.name] = stack.enter_context(started_program(program, folder, control))
        youngest = time.monotonic()
        time.sleep(_SETTLE_SECONDS)
        young = {name: each.process.memory() for name, each in running.items()}
        idle = measures.idle(running, watched)
        scraped = measures.scraped(running, idle, scrapes)
        crowded = measures.crowded(running, idle)
        slow = measures.slowed(running, idle, slowed)
        time.sleep(max(0.0, youngest + old - time.monotonic()))
        return {
            name: {
                "first_page_s": each.first_page,
                "first_page_cpu_s": each.first_cpu,
                "idle": idle[name],
                "scraped": scraped[name],
                "crowded": crowded[name],
                "slow": slow[name],
                "young": young[name]._asdict(),
                "old": each.process.memory()._asdict(),
                "page": _size(each.page()),
            }
            for name, each in running.items()
        }


def _size(page: str) -> dict[str, int]:
    samples = sum(bool(line) and not line.startswith("#") for line in page.splitlines())
    return {"samples": samples, "bytes": len(page)}
