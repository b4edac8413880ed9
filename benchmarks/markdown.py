"""Tables and figures as the page shows them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from benchmarks.nodes import NODES

Results = Mapping[str, Mapping[str, Any]]
"""By the name of a measure and of its node, as in ``polls-mig``; some measures, as ``growth``, have no node.

``missing`` contains the reasons why measures could not be made, by their names.
"""
Column = Callable[[Mapping[str, Any]], str]
UNMEASURED = "This was not measured yet: `make bench`."
MIB = 1 << 20


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table, or if it has no rows the line that says so."""
    lines = [head, ["---"] * len(head), *rows]
    if len(lines) == 2:
        return UNMEASURED
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def per_node(results: Results, measure: str, columns: Mapping[str, Column]) -> str:
    """Return a table with a row for each node on which something was measured."""
    rows = [
        (title, *(column(results[f"{measure}-{node}"]) for column in columns.values()))
        for node, (title, _) in NODES.items()
        if f"{measure}-{node}" in results
    ]
    return table(("node", *columns), rows)


def seconds(key: str) -> Column:
    """Return a column of seconds."""
    return lambda figures: f"{figures[key]:.2f} s"


def milliseconds(key: str) -> Column:
    """Return a column of seconds in ms."""
    return lambda figures: f"{figures[key] * 1e3:.1f} ms"


def mebibytes(key: str) -> Column:
    """Return a column of bytes in MiB."""
    return lambda figures: f"{figures[key] / MIB:.1f} MiB"


def kilobytes(key: str) -> Column:
    """Return a column of bytes in kB."""
    return lambda figures: f"{figures[key] / 1e3:.0f} kB"
