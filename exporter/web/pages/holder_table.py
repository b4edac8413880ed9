"""The table of holders: its columns, and one row per container and device.

Rows keep the order of the snapshot if not sorted.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

from exporter.formats.wording import mode_word, plural
from exporter.model import ContainerRow
from exporter.model.states import STATE_WORDS
from exporter.web.html import escape_controls, piece
from exporter.web.pages import holder_cells
from exporter.web.pages.holder_cells import Cell, Line, line_of, row_id
from exporter.web.pages.holder_filters import Choice, choices, chosen
from exporter.web.pages.markup import URGENCY, slice_of
from exporter.web.pages.scene import Scene
from exporter.web.parameters import LONGEST, Query

Rank: TypeAlias = Callable[[Line], Any]
"""Returns the sort key of a row; None if unknown, which comes last in both directions."""

_URGENT = {name: number for number, name in enumerate(URGENCY)}
_ISOLATIONS = {"hard": 0, "soft": 1, "none": 2}
_DIGITS = re.compile(r"(\d+)")


class Column(NamedTuple):
    """A column of the table."""

    key: str  # in the URL
    name: str
    title: str
    cell: Callable[[Line], Cell]
    rank: Rank | None  # the sort key, None if the column cannot be sorted
    label: str = ""  # next to its cells on small windows, "" for the name
    align: Literal["", "end"] = ""  # the class of its heading and cells; end for numbers
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


# The head of each row, which is always shown.
_HOLDER = Column("holder", "Namespace / pod", "", holder_cells.holder, lambda line: line.row.holder)
COLUMNS: Sequence[Column] = (
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
        lambda line: holder_cells.efficiency_of(line.row),
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
_TABLE = "#holders"


class Heading(NamedTuple):
    """The head of a column."""

    column: Column
    href: str  # sorts by it; "" if it cannot be sorted
    sorted: str  # its ``aria-sort``


class Box(NamedTuple):
    """A column that can be chosen."""

    column: Column
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
    available = [column for column in COLUMNS if scene.sparkline or column.key != "hour"]
    query, notes = _understood(scene.query, available)
    lines = [line_of(scene, row) for row in containers]
    shown = chosen(lines, query) if query.filters else lines
    rank = _ranks(available).get(query.sort.removeprefix("-"))
    if rank is not None:
        shown = in_order(shown, rank, falling=query.sort.startswith("-"))
    drawn = [column for column in available if _is_wanted(column, query)]
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
        "holders-head": made("head_of", [_heading(query, column) for column in (_HOLDER, *drawn)]),
        "holders-unmatched": made("unmatched_of", count if lines and not shown else None),
    }
    return Table({**pieces, **rows}, tuple(rows))


def _ranks(columns: Iterable[Column]) -> dict[str, Rank]:
    """Return the sort keys of the columns that can be sorted."""
    return {column.key: column.rank for column in (_HOLDER, *columns) if column.rank is not None}


def _is_wanted(column: Column, query: Query) -> bool:
    return column.key in query.columns if query.columns else column.shown


def _rows(lines: Sequence[Line], drawn: Sequence[Column]) -> dict[str, str]:
    rows: dict[str, str] = {}
    for line in lines:
        name = row_id(line.row.holder, line.row.device)
        while name in rows:
            name += "-"
        head = f'<th scope="row">{_HOLDER.cell(line).html}</th>'
        cells = "".join([_element(column, column.cell(line)) for column in drawn])
        rows[name] = escape_controls(f'<tr id="{name}">{head}{cells}</tr>')
    return rows


def _element(column: Column, cell: Cell) -> str:
    look = f"{column.align} {cell.look}".strip()
    of_class = f' class="{look}"' if look else ""
    title = "" if cell.title is None else f' title="{cell.title}"'
    return f'<td data-label="{column.label or column.name}"{of_class}{title}>{cell.html}</td>'


def _understood(query: Query, available: Sequence[Column]) -> tuple[Query, list[str]]:
    """Return a query without unknown parts, and a note on each of them."""
    wanted = tuple(column.key for column in available if column.key in query.columns)
    usual = tuple(column.key for column in available if column.shown)
    known = replace(
        query,
        sort=query.sort if query.sort.removeprefix("-") in _ranks(available) else "",
        columns=() if wanted == usual else wanted,
        state=query.state if query.state in STATE_WORDS else "",
    )
    keys = {column.key for column in (_HOLDER, *COLUMNS)}
    return known, list(_notes(query, known, [key for key in query.columns if key not in keys]))


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
    kept = {"sort": query.sort, "range": query.span}
    return Form(
        text=query.text,
        longest=LONGEST,
        choices=choices(lines, query),
        boxes=[Box(column, _is_wanted(column, query)) for column in available],
        kept={name: value for name, value in kept.items() if value},
        defaults=",".join(column.key for column in available if column.shown),
    )


def _heading(query: Query, column: Column) -> Heading:
    rising, falling = column.key, f"-{column.key}"
    first, second = (falling, rising) if column.falling else (rising, falling)
    following = {"": first, first: second, second: ""}
    now = query.sort if query.sort in following else ""
    href = f"{replace(query, sort=following[now]).url}{_TABLE}" if column.rank else ""
    sort = {rising: "ascending", falling: "descending"}.get(now, "")
    return Heading(column, href, sort)
