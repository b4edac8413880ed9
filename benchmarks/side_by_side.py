"""This exporter beside what a user would run instead: the same driver, the same node, at the same time.

Run as ``python -m benchmarks.side_by_side`` as root on Linux, with gcc; takes five to six minutes. Other
programs are installed below build/ the first time, which needs a network. The driver is a stub of ours that
all of them load; no GPU is there. Figures go to build/bench/side_by_side.json, tables to
build/bench/side_by_side.md.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.side_by_side_parts import rounds
from benchmarks.side_by_side_parts.driver import DriverError, compile_driver
from benchmarks.side_by_side_parts.node import NodeError
from benchmarks.side_by_side_parts.programs import ROOT, ProgramError, all_programs, install
from benchmarks.side_by_side_parts.tables import markdown

_KEPT = ROOT / "build/bench"


def run() -> dict[str, Any]:
    """Measure all; raise DriverError, NodeError or ProgramError, which say what is missing."""
    programs = all_programs({})
    for program in programs:
        install(program)
    results: dict[str, Any] = {
        "machine": rounds.machine(),
        "versions": {program.name: list(program.packages) for program in programs},
        "nodes": {},
    }
    for layout in rounds.LAYOUTS:
        with tempfile.TemporaryDirectory(prefix="side-") as folder:
            compile_driver(Path(folder))
            results["nodes"][layout.name] = rounds.measure(layout, Path(folder))
    return results


def table(results: dict[str, Any]) -> str:
    """Write the results as a section of Markdown, ratios first."""
    return markdown(results)


def main() -> int:
    """Measure, keep and print; 1 where something is missing."""
    try:
        results = run()
    except (DriverError, NodeError, ProgramError) as error:
        sys.stderr.write(f"side_by_side: {error}\n")
        return 1
    _KEPT.mkdir(parents=True, exist_ok=True)
    (_KEPT / "side_by_side.json").write_text(json.dumps(results, indent=1) + "\n")
    (_KEPT / "side_by_side.md").write_text(table(results))
    sys.stdout.write(table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
