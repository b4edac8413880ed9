"""This exporter and what a user would run instead: on the same driver and the same node, at the same time.

It needs Linux, root and gcc, and takes five to six minutes. Other programs are installed below build/ the
first time, which needs a network. The driver is a stub that all of them load; no GPU is there.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.side_by_side import measures
from benchmarks.side_by_side.driver import Control, Layout, compile_driver
from benchmarks.side_by_side.node import Node, running_node
from benchmarks.side_by_side.programs import (
    Program,
    all_programs,
    install,
    running,
)

_SETTLE_SECONDS = 3.0
_SMALLEST_NODE = Layout(name="", gpus=1, parts=1, mig=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How much is measured; times are in seconds."""

    layouts: tuple[Layout, ...] = (
        Layout(name="8 GPUs x 7 MIG devices", gpus=8, parts=7, mig=True),
        Layout(name="16 GPUs x 10 time slices", gpus=16, parts=10, mig=False),
    )
    programs: Callable[[dict[str, str]], Sequence[Program]] = all_programs
    idle: float = 60.0  # how long programs are watched unscraped
    scrapes: int = 35
    slow: float = 10.0  # how long they have a slow driver
    old: float = 120.0  # the age at which their memory is read again


# Programs that poll every 5 s must poll at least once while they are watched.
SMALLEST = Form(
    layouts=(Layout(name="1 GPU x 2 MIG devices", gpus=1, parts=2, mig=True),),
    idle=6.0,
    scrapes=3,
    slow=6.0,
    old=0.0,
)


def measure(_node: str, *, quick: bool) -> dict[str, Any]:
    """Measure all of it, or one small node; raise MissingError."""
    return run(SMALLEST if quick else Form())


def run(form: Form) -> dict[str, Any]:
    """Measure all of a form; raise MissingError."""
    programs = form.programs({})
    with tempfile.TemporaryDirectory(prefix="side-") as name:
        folder = Path(name)
        # What the machine cannot do is reported before anything is fetched.
        compile_driver(folder)
        with running_node(_SMALLEST_NODE):
            pass
        for program in programs:
            install(program)
        return {
            "versions": {program.name: list(program.packages) for program in programs},
            "nodes": {layout.name: {"programs": _measured(layout, folder, form)} for layout in form.layouts},
        }


def _measured(layout: Layout, folder: Path, form: Form) -> dict[str, Any]:
    """Run all programs on one node, side by side, and return the figures of each."""
    with running_node(layout) as node, ExitStack() as stack:
        programs = [
            stack.enter_context(running(program, folder, _control(stack, folder, layout, node, program)))
            for program in form.programs(node.environment)
        ]
        youngest = time.monotonic()
        time.sleep(_SETTLE_SECONDS)
        young = {each.program.name: each.process.memory() for each in programs}
        idle = measures.idle(programs, form.idle)
        scraped = measures.scraped(programs, idle, form.scrapes)
        crowded = measures.crowded(programs, idle)
        slow = measures.slowed(programs, idle, form.slow)
        time.sleep(max(0.0, youngest + form.old - time.monotonic()))
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
            for each in programs
            for name in [each.program.name]
        }


def _control(stack: ExitStack, folder: Path, layout: Layout, node: Node, program: Program) -> Control:
    name = program.name.replace(" ", "").replace(",", "-")
    return stack.enter_context(Control(folder / f"{name}.control", layout, node.pids))


def _size(page: str) -> dict[str, int]:
    samples = sum(bool(line) and not line.startswith("#") for line in page.splitlines())
    return {"samples": samples, "bytes": len(page)}
