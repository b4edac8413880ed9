"""One node with all programs on it: what is measured, in which order, and when."""

import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.side_by_side_parts import checks, measures
from benchmarks.side_by_side_parts.driver import Control, Layout
from benchmarks.side_by_side_parts.node import Node, running_node
from benchmarks.side_by_side_parts.programs import OURS, SLOWER, Program, all_programs, environment
from benchmarks.side_by_side_parts.running import Running, running

SETTLE_SECONDS = 3.0
_STEPS = Path(__file__).with_name("steps.py")

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How much is measured: on which nodes, of which programs, and how long. Times are in seconds.

    Programs are watched unscraped for ``idle``, scraped ``scrapes`` times, and have a slow driver for
    ``slow``. Their memory is read again ``old`` after the start.
    """

    layouts: tuple[Layout, ...] = (
        Layout(name="8 GPUs x 7 MIG devices", gpus=8, parts=7, mig=True),
        Layout(name="16 GPUs x 10 time slices", gpus=16, parts=10, mig=False),
    )
    programs: Callable[[dict[str, str]], Sequence[Program]] = all_programs
    old: float = 120.0
    idle: float = 30.0
    scrapes: int = 35
    slow: float = 10.0


WHOLE = Form()
# Who polls every 5 s must poll at least once while it is watched; a node that is cut is asked least.
SMALLEST = Form(
    layouts=(Layout(name="1 GPU x 2 MIG devices", gpus=1, parts=2, mig=True),),
    old=0.0,
    idle=6.0,
    scrapes=3,
    slow=6.0,
)


def measure(layout: Layout, folder: Path, form: Form) -> Figures:
    """Run all programs on one node, side by side, and ask the questions of their pages."""
    with running_node(layout) as node, ExitStack() as stack:
        started = [
            stack.enter_context(running(program, folder, _control(stack, folder, node, program)))
            for program in form.programs(node.environment)
        ]
        time.sleep(SETTLE_SECONDS)
        young = {each.program.name: each.memory() for each in started}
        idle = measures.cycles(started, form.idle)
        scraped = measures.scrapes(started, idle, form.scrapes)
        crowded = measures.crowds(started, idle)
        slow = measures.slow_driver(started, idle, form.slow)
        time.sleep(max(0.0, max(each.started for each in started) + form.old - time.monotonic()))
        programs = {
            each.program.name: {
                "first_page_s": each.first_page,
                "first_page_cpu_s": each.first_cpu,
                "idle": idle[each.program.name],
                "scraped": scraped[each.program.name],
                "crowded": crowded[each.program.name],
                "slow": slow[each.program.name],
                "young": young[each.program.name]._asdict(),
                "old": each.memory()._asdict(),
                "page": _size(each),
            }
            for each in started
        }
        return {"programs": programs, "questions": _questions(started, node, folder)} | _parts(
            layout, folder, node
        )


def _control(stack: ExitStack, folder: Path, node: Node, program: Program) -> Control:
    name = program.name.replace(" ", "").replace(",", "-")
    return stack.enter_context(Control(folder / f"{name}.control", node.layout, node.pids))


def _size(each: Running) -> Figures:
    page = each.page()
    samples = sum(bool(line) and not line.startswith("#") for line in page.splitlines())
    return {"samples": samples, "bytes": len(page)}


def _questions(started: Sequence[Running], node: Node, folder: Path) -> checks.Answers:
    """Ask of the pages; at last break the driver, which some programs do not survive."""
    asked = [each for each in started if each.program.name != SLOWER]
    answers = checks.pages(asked, node)
    if node.layout.mig:
        return answers
    answers["a GPU falls off the bus"] = checks.lost(asked, node.layout)
    answers["calls about a GPU hang"] = checks.hanging(asked, node.layout)
    answers["a machine without the driver's library"] = {
        each.program.name: checks.missing(each.program, folder) for each in asked
    }
    return answers


def _parts(layout: Layout, folder: Path, node: Node) -> Figures:
    """Say where our memory goes, on the node with more holders."""
    if layout.mig:
        return {}
    ours = next(each for each in all_programs(node.environment) if each.name == OURS)
    with Control(folder / "steps.control", layout, node.pids) as control:
        done = subprocess.run(  # noqa: S603 - our own file
            [sys.executable, str(_STEPS)],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            timeout=60,
            env=environment(ours, folder, control.path),
        )
    return {"parts": json.loads(done.stdout)}


def machine() -> Figures:
    """Say what this was measured on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "?")
    load = Path("/proc/loadavg").read_text().split()[0]
    return {
        "processor": model,
        "processors": sum(line.startswith("processor") for line in lines),
        "system": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        "python": platform.python_version(),
        "load": float(load),
        "at": time.strftime("%Y-%m-%d", time.gmtime()),
    }
