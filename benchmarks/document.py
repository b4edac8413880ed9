"""The page docs/performance.md, written from what was measured."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks import growth, libraries, memory, polls, scrapes, startup
from benchmarks.fleet import tables as fleet
from benchmarks.judge import verdicts
from benchmarks.markdown import UNMEASURED, Results, table
from benchmarks.side_by_side import tables as side_by_side

_TEXTS = Path(__file__).with_name("performance.txt")
_SIGNS = {True: "met", False: "**not met**", None: "uncertain"}


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
        "libraries": _section(results, "libraries", libraries.table),
        "startup": startup.table(results),
        "growth": _section(results, "growth", growth.table),
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
