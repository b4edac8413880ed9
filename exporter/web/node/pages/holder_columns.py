"""The columns of the table of holders: a row for each, which its heading, cells, order and link follow."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from exporter.formats.holder_answers import efficiency_of
from exporter.web.node.pages import holder_cells
from exporter.web.node.pages.holder_cells import HolderLine, TableCell
from exporter.web.node.pages.slice_words import URGENCY, slice_of
from exporter.wording import mode_word

# Returns the sort key of a row; None if unknown, which comes last in both directions.
Rank: TypeAlias = Callable[[HolderLine], Any]

_ISOLATIONS = {"hard": 0, "soft": 1, "none": 2}
_DIGITS = re.compile(r"(\d+)")


class Column(NamedTuple):
    """A column: all that its heading and its cells need."""

    key: str  # in the URL
    name: str
    title: str
    cell: Callable[[HolderLine], TableCell]
    rank: Rank | None  # the sort key, None if the column cannot be sorted
    label: str = ""  # next to its cells on small windows, "" for the name
    align: Literal["", "end"] = ""  # the class of its heading and cells; end for numbers
    falling: bool = False  # whether the first click sorts the largest first
    shown: bool = True  # whether it is shown by default


def _gpu(line: HolderLine) -> tuple[bool, str, int] | None:
    gpu = line.gpu
    return None if gpu is None else (gpu.unread, gpu.identity.vendor, gpu.identity.index)


def _slice(line: HolderLine) -> list[tuple[int, str]] | None:
    held = slice_of(line.scene, line.row)
    if held.why:
        return None
    parts = _DIGITS.split(held.text)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts if part]


# The head of each row, which is always shown.
HOLDER = Column("holder", "Namespace / pod", "", holder_cells.holder, lambda line: line.row.holder)
COLUMNS: Sequence[Column] = (
    Column(
        "state",
        "State",
        "what it does with its slice; those that need attention come first",
        holder_cells.state,
        lambda line: None if line.state == "unknown" else URGENCY.index(line.state),
    ),
    Column(
        "quiet",
        "Quiet for",
        "time since a quiet or idle holder last computed",
        holder_cells.quiet,
        holder_cells.quiet_of,
        falling=True,
    ),
    Column("gpu", "GPU", "", holder_cells.gpu, _gpu, align="end"),
    Column("slice", "Slice", "what it holds of the GPU", holder_cells.part, _slice),
    Column(
        "sharing",
        "Sharing",
        "how the GPU is shared",
        holder_cells.sharing,
        lambda line: mode_word(line.row.sharing),
        shown=False,
    ),
    Column(
        "isolation",
        "Isolation",
        "what separates it from others on the same GPU",
        holder_cells.isolation,
        lambda line: _ISOLATIONS.get(line.row.isolation),
    ),
    Column(
        "memory",
        "Memory used / entitled",
        "",
        holder_cells.memory,
        lambda line: line.row.memory_used,
        label="Memory",
        falling=True,
    ),
    Column(
        "compute",
        "Compute used / entitled",
        "in physical GPUs",
        holder_cells.compute,
        lambda line: line.row.compute_used,
        label="Compute",
        falling=True,
    ),
    Column(
        "efficiency",
        "Efficiency",
        "compute used / entitled while it was measured, since this exporter first saw it",
        holder_cells.efficiency,
        lambda line: efficiency_of(line.row),
        align="end",
        shown=False,
    ),
    Column("hour", "Last hour", "compute, in steps of a few minutes", holder_cells.hour, None),
    Column(
        "processes",
        "Processes",
        "with a context on the GPU",
        holder_cells.processes,
        lambda line: line.row.processes,
        align="end",
        falling=True,
        shown=False,
    ),
    Column(
        "age",
        "Age",
        "since this exporter first saw it",
        holder_cells.age,
        holder_cells.age_of,
        falling=True,
        shown=False,
    ),
)
