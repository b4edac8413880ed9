"""The table of holders: its columns, and one row per container and device.

Rows keep the order of the snapshot if not sorted.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from exporter.model import ContainerRow
from exporter.model.states import STATE_WORDS
from exporter.web.kit.html import escape_controls, piece
from exporter.web.node.pages import holder_cells
from exporter.web.node.pages.holder_cells import Line, line_of, row_id
from exporter.web.node.pages.holder_filters import Choice, choices, chosen
from exporter.web.node.pages.scene import Scene
from exporter.web.node.pages.slice_words import URGENCY, slice_of
from exporter.web.node.parameters import LONGEST, Query
from exporter.wording import mode_word, plural

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
    Column(HOLDER, "Namespace / pod", "", holder_cells.holder, lambda line: line.row.holder),
    Column(
        "state",
        "State",
        "what it does with its slice; those that need attention come first",
        holder_cells.state,
        lambda line: None if line.state == "unknown" else _URGENT[line.state],
    ),
    Column(
        "quiet",
        "Quiet for",
        "time since a quiet or idle holder last computed",
        holder_cells.quiet,
        holder_cells.quiet_of,
        falling=True,
    ),
    Column("gpu", "GPU", "", holder_cells.gpu, _gpu),
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
        falling=True,
    ),
    Column(
        "compute",
        "Compute used / entitled",
        "in physical GPUs",
        holder_cells.compute,
        lambda line: line.row.compute_used,
        falling=True,
    ),
    Column(
        "efficiency",
        "Efficiency",
        "compute used / entitled while it was measured, since this exporter first saw it",
        holder_cells.efficiency,
        lambda line: holder_cells.efficiency_of(line.row),
        shown=False,
    ),
    Column("hour", "Last hour", "compute, in steps of a few minutes", holder_cells.hour, None),
    Column(
        "processes",
        "Processes",
        "with a context on the GPU",
        holder_cells.processes,
        lambda line: line.row.processes,
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
_WITHOUT_HISTORY = tuple(column for column in COLUMNS if column.key != "hour")
# The keys of the columns shown by default, without the first.
_DEFAULTS = tuple(column.key for column in COLUMNS[1:] if column.shown)

_TABLE = "#holders"


class Heading(NamedTuple):
    """The head of a column; ``sorted`` is its ``aria-sort``, ``href`` sorts by it, "" if it cannot."""

    key: str
    name: str
    title: str
    href: str
    sorted: str


class Box(NamedTuple):
    """A column that can be chosen."""

    key: str
    name: str
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The filters and columns of the table. ``kept`` are the query's parameters that are not in the form."""

    text: str
    longest: int
    choices: Sequence[Choice]
    boxes: Sequence[Box]
    kept: Mapping[str, str]
    defaults: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """The number of rows, and ``shown`` if some are left out; ``all_href`` leads to all of them."""

    total: str
    shown: int | None
    all_href: str
    notes: Sequence[str]


class Table(NamedTuple):
    """The table in pieces by the ids of elements, and the ids of its rows in their order."""

    pieces: Mapping[str, str]
    rows: tuple[str, ...]


def holder_table(scene: Scene, containers: Sequence[ContainerRow]) -> Table:
    """Return the table of some containers, by the query."""
    # The last hour needs a history.
    available = COLUMNS if scene.sparkline else _WITHOUT_HISTORY
    query, notes = _understood(scene.query, available)
    lines = [line_of(scene, row) for row in containers]
    shown = chosen(lines, query) if query.filters else lines
    column = next((column for column in available if column.key == query.sort.removeprefix("-")), None)
    if column and column.rank:
        shown = in_order(shown, column.rank, falling=query.sort.startswith("-"))
    wanted = {HOLDER, *(query.columns or _DEFAULTS)}
    drawn = [column for column in available if column.key in wanted]
    every = f"{replace(query, text='', namespace='', gpu='', state='').url}{_TABLE}"
    count = Count(
        total=plural(len(lines), "holder"),
        shown=len(shown) if query.filters else None,
        all_href=every,
        notes=notes,
    )
    rows = _rows(shown, drawn)
    made = partial(piece, "pieces/holders.html")
    pieces = {
        "holders-form": made("form_of", _form(lines, query, available) if lines else None),
        "holders-count": made("count_of", count),
        "holders-head": made("head_of", [_heading(query, column) for column in drawn]),
        "holders-unmatched": made("unmatched_of", count if lines and not shown else None),
    }
    return Table({**pieces, **rows}, tuple(rows))


def _rows(lines: Sequence[Line], drawn: Sequence[Column]) -> dict[str, str]:
    writers = [column.write for column in drawn]
    rows: dict[str, str] = {}
    for line in lines:
        name = row_id(line.row.holder, line.row.device)
        while name in rows:
            name += "-"
        cells = "".join([write(line) for write in writers])
        rows[name] = escape_controls(f'<tr id="{name}">{cells}</tr>')
    return rows


def _understood(query: Query, available: Sequence[Column]) -> tuple[Query, list[str]]:
    """Return a query without unknown parts, and a note on each of them."""
    sortable = {column.key for column in available if column.rank}
    keys = {column.key for column in available}
    wanted = tuple(column.key for column in available if column.key in query.columns and column.key != HOLDER)
    known = replace(
        query,
        sort=query.sort if query.sort.removeprefix("-") in sortable else "",
        columns=() if wanted == tuple(key for key in _DEFAULTS if key in keys) else wanted,
        state=query.state if query.state in STATE_WORDS else "",
    )
    return known, list(_notes(query, known, [key for key in query.columns if key not in keys | {"hour"}]))


def _notes(query: Query, known: Query, unknown_columns: Sequence[str]) -> Iterator[str]:
    if query.sort != known.sort:
        yield f"Cannot sort by “{query.sort.removeprefix('-')}”."
    if unknown_columns:
        names = ", ".join(f"“{key}”" for key in unknown_columns)
        yield f"Unknown {'column' if len(unknown_columns) == 1 else 'columns'} {names}."
    if query.state != known.state:
        yield f"Unknown state “{query.state}”."
    if len(query.text) == LONGEST:
        yield f"Only the first {LONGEST} characters of the filter are used."


def _form(lines: Sequence[Line], query: Query, available: Sequence[Column]) -> Form:
    wanted = query.columns or _DEFAULTS
    boxes = [
        Box(column.key, column.name, column.key in wanted) for column in available if column.key != HOLDER
    ]
    kept = {"sort": query.sort, "range": query.span}
    return Form(
        text=query.text,
        longest=LONGEST,
        choices=choices(lines, query),
        boxes=boxes,
        kept={name: value for name, value in kept.items() if value},
        defaults=",".join(box.key for box in boxes if box.key in _DEFAULTS),
    )


def _heading(query: Query, column: Column) -> Heading:
    rising, falling = column.key, f"-{column.key}"
    first, second = (falling, rising) if column.falling else (rising, falling)
    following = {"": first, first: second, second: ""}
    now = query.sort if query.sort in following else ""
    href = f"{replace(query, sort=following[now]).url}{_TABLE}" if column.rank else ""
    sort = {rising: "ascending", falling: "descending"}.get(now, "")
    return Heading(column.key, column.name, column.title, href, sort)
