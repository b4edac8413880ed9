"""This exporter beside what a user would run instead: the same driver, the same node, at the same time.

Run as ``python -m benchmarks.side_by_side`` as root on Linux, with gcc; takes five to six minutes. Other
programs are installed below build/ the first time, which needs a network. The driver is a stub of ours that
all of them load; no GPU is there. Figures go to build/bench/side-by-side.json, tables to
build/bench/side-by-side.md.
"""

import json
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.effort import LEAST, Effort
from benchmarks.side_by_side_parts import rounds
from benchmarks.side_by_side_parts.driver import DriverError, Layout, compile_driver
from benchmarks.side_by_side_parts.node import NodeError, running_node
from benchmarks.side_by_side_parts.programs import ROOT, ProgramError, install
from benchmarks.side_by_side_parts.rounds import SMALLEST, WHOLE, Form
from benchmarks.side_by_side_parts.tables import markdown

_KEPT = ROOT / "build/bench"
_TRIED = Layout(name="", gpus=1, parts=1, mig=False)

MISSING = DriverError, NodeError, ProgramError
"""Why it cannot be measured on this machine; the texts say what is missing."""


async def measure(_node: str, effort: Effort) -> dict[str, Any]:
    """Measure all of it, or with the least effort one small node; raise one of MISSING."""
    # Nothing here is awaited, and asyncio would hear Ctrl-C only at the end.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return run(SMALLEST if effort == LEAST else WHOLE)
    finally:
        signal.signal(signal.SIGINT, before)


def run(form: Form = WHOLE) -> dict[str, Any]:
    """Measure all; raise DriverError, NodeError or ProgramError, which say what is missing."""
    programs = form.programs({})
    with tempfile.TemporaryDirectory(prefix="side-") as name:
        folder = Path(name)
        # What the machine cannot do is told before anything is fetched.
        compile_driver(folder)
        with running_node(_TRIED):
            pass
        for program in programs:
            install(program)
        return {
            "machine": rounds.machine(),
            "versions": {program.name: list(program.packages) for program in programs},
            "nodes": {layout.name: rounds.measure(layout, folder, form) for layout in form.layouts},
        }


def table(results: Mapping[str, Any]) -> str:
    """Write the results as what stands below the heading of a section of Markdown, ratios first."""
    return markdown(results)


def main() -> int:
    """Measure, keep and print; 1 where something is missing."""
    try:
        results = run()
    except MISSING as error:
        sys.stderr.write(f"side_by_side: {error}\n")
        return 1
    _KEPT.mkdir(parents=True, exist_ok=True)
    (_KEPT / "side-by-side.json").write_text(json.dumps(results, indent=1) + "\n")
    (_KEPT / "side-by-side.md").write_text(table(results))
    sys.stdout.write(table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
