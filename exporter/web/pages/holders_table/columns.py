"""The columns of the table of holders: the cell of each, and its sort key."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from exporter.formats.wording import mode_word
from exporter.web.pages.holders_table import cells_html
from exporter.web.pages.holders_table.cells_html import Line
from exporter.web.pages.markup import URGENCY, slice_of
from exporter.web.pages.scene import Scene

Rank: TypeAlias = Callable[[Line], Any]
"""Returns the sort key of a row; None if unknown, which comes last in both directions."""

HOLDER = "holder"
"""The key of the first column, which is always shown."""

_URGENT = {name: number for number, name in enumerate(URGENCY)}
_ISOLATIONS = {"hard": 0, "soft": 1, "none": 2}
_DIGITS = re.compile(r"(\d+)")


class Column(NamedTuple):
    """A column of the table."""

    key: str
    name: str
    title: str
    write: Callable[[Line], str]  # returns the cell of a row
    rank: Rank | None  # the sort key, None if the column cannot be sorted
    falling: bool = False  # whether the first click sorts the largest first
    shown: bool = True  # whether it is shown by default


def columns(scene: Scene) -> Sequence[Column]:
    """Return the available columns: the last hour needs a history."""
    return COLUMNS if scene.sparkline else _WITHOUT_HISTORY


def defaults() -> tuple[str, ...]:
    """Return the keys of the columns shown by default, without the first."""
    return tuple(column.key for column in COLUMNS[1:] if column.shown)


def in_order(lines: Iterable[Line], rank: Rank, *, falling: bool) -> list[Line]:
    """Return rows in order; the sort is stable, and unknown values come last."""
    ranked = [(rank(line), line) for line in lines]
    known = [pair for pair in ranked if pair[0] is not None]
    known.sort(key=lambda pair: pair[0], reverse=falling)
    return [line for _, line in known] + [line for value, line in ranked if value is None]


def _gpu(line: Line) -> tuple[bool, str, int] | None:
    gpu = line.gpu
    return None if gpu is None else (gpu.unread, gpu.identity.vendor, gpu.identity.index)


def _slice(line: Line) -> list[tuple[int, str]] | None:
    held = slice_of(line.scene, line.row)
    if held.why:
        return None
    parts = _DIGITS.split(held.text)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts if part]


COLUMNS: Sequence[Column] = (
    Column(HOLDER, "Namespace / pod", "", cells_html.holder, lambda line: line.row.holder),
    Column(
        "state",
        "State",
        "what it does with its slice; those that need attention come first",
        cells_html.state,
        lambda line: None if line.state == "unknown" else _URGENT[line.state],
    ),
    Column(
        "quiet",
        "Quiet for",
        "time since a quiet or idle holder last computed",
        cells_html.quiet,
        cells_html.quiet_of,
        falling=True,
    ),
    Column("gpu", "GPU", "", cells_html.gpu, _gpu),
    Column("slice", "Slice", "what it holds of the GPU", cells_html.part, _slice),
    Column(
        "sharing",
        "Sharing",
        "how the GPU is shared",
        cells_html.sharing,
        lambda line: mode_word(line.row.sharing),
        shown=False,
    ),
    Column(
        "isolation",
        "Isolation",
        "what separates it from others on the same GPU",
        cells_html.isolation,
        lambda line: _ISOLATIONS.get(line.row.isolation),
    ),
    Column(
        "memory",
        "Memory used / entitled",
        "",
        cells_html.memory,
        lambda line: line.row.memory_used,
        falling=True,
    ),
    Column(
        "compute",
        "Compute used / entitled",
        "in physical GPUs",
        cells_html.compute,
        lambda line: line.row.compute_used,
        falling=True,
    ),
    Column(
        "efficiency",
        "Efficiency",
        "compute used / entitled while it was measured, since this exporter first saw it",
        cells_html.efficiency,
        lambda line: cells_html.efficiency_of(line.row),
        shown=False,
    ),
    Column("hour", "Last hour", "compute, in steps of a few minutes", cells_html.hour, None),
    Column(
        "processes",
        "Processes",
        "with a context on the GPU",
        cells_html.processes,
        lambda line: line.row.processes,
        falling=True,
        shown=False,
    ),
    Column(
        "age",
        "Age",
        "since this exporter first saw it",
        cells_html.age,
        cells_html.age_of,
        falling=True,
        shown=False,
    ),
)
_WITHOUT_HISTORY = tuple(column for column in COLUMNS if column.key != "hour")
