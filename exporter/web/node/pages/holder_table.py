"""The table of holders: its form and headings, and one row per container and device.

Rows keep the order of the snapshot if not sorted.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from exporter.model import ContainerRow
from exporter.model.states import STATE_WORDS
from exporter.web.kit.html import escape_controls, piece
from exporter.web.node.pages.holder_cells import HolderLine, TableCell, line_of, row_id
from exporter.web.node.pages.holder_columns import COLUMNS, HOLDER, Column, Rank
from exporter.web.node.pages.holder_filters import Choice, choices, chosen
from exporter.web.node.pages.scene import Scene
from exporter.web.node.parameters import LONGEST, Query
from exporter.wording import plural

_TABLE = "#holders"


class ColumnHeading(NamedTuple):
    """The head of a column."""

    column: Column
    href: str  # sorts by it; "" if it cannot be sorted
    sorted: str  # its ``aria-sort``


class ColumnBox(NamedTuple):
    """A column that can be chosen."""

    column: Column
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderForm:
    """The filters and columns of the table."""

    text: str
    longest: int  # characters of the filter
    choices: Sequence[Choice]
    boxes: Sequence[ColumnBox]
    kept: Mapping[str, str]  # parameters of the query that are not in the form
    defaults: str  # keys of the columns shown by default


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderCount:
    """The number of rows."""

    total: str
    shown: int | None  # None if all are
    all_href: str  # shows all of them
    notes: Sequence[str]


class HolderTable(NamedTuple):
    """The table in pieces by the ids of elements, and the ids of its rows in their order."""

    pieces: Mapping[str, str]
    rows: tuple[str, ...]


def holder_table(scene: Scene, containers: Sequence[ContainerRow]) -> HolderTable:
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
    count = HolderCount(
        total=plural(len(lines), "holder"),
        shown=len(shown) if query.filters else None,
        all_href=f"{replace(query, text='', namespace='', gpu='', state='').url}{_TABLE}",
        notes=notes,
    )
    rows = _rows(shown, drawn)
    made = partial(piece, "pieces/holders.html")
    pieces = {
        "holders-form": made("form_of", _form(lines, query, available) if lines else None),
        "holders-count": made("count_of", count),
        "holders-head": made("head_of", [_heading(query, column) for column in (HOLDER, *drawn)]),
        "holders-unmatched": made("unmatched_of", count if lines and not shown else None),
    }
    return HolderTable({**pieces, **rows}, tuple(rows))


def in_order(lines: Iterable[HolderLine], rank: Rank, *, falling: bool) -> list[HolderLine]:
    """Return rows in order; the sort is stable, and unknown values come last."""
    ranked = [(rank(line), line) for line in lines]
    known = [pair for pair in ranked if pair[0] is not None]
    known.sort(key=lambda pair: pair[0], reverse=falling)
    return [line for _, line in known] + [line for value, line in ranked if value is None]


def _ranks(columns: Iterable[Column]) -> dict[str, Rank]:
    """Return the sort keys of the columns that can be sorted."""
    return {column.key: column.rank for column in (HOLDER, *columns) if column.rank is not None}


def _is_wanted(column: Column, query: Query) -> bool:
    return column.key in query.columns if query.columns else column.shown


def _rows(lines: Sequence[HolderLine], drawn: Sequence[Column]) -> dict[str, str]:
    rows: dict[str, str] = {}
    for line in lines:
        name = row_id(line.row.holder, line.row.device)
        while name in rows:
            name += "-"
        head = f'<th scope="row">{HOLDER.cell(line).html}</th>'
        cells = "".join([_element(column, column.cell(line)) for column in drawn])
        rows[name] = escape_controls(f'<tr id="{name}">{head}{cells}</tr>')
    return rows


def _element(column: Column, cell: TableCell) -> str:
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
    keys = {column.key for column in (HOLDER, *COLUMNS)}
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


def _form(lines: Sequence[HolderLine], query: Query, available: Sequence[Column]) -> HolderForm:
    kept = {"sort": query.sort, "range": query.span}
    return HolderForm(
        text=query.text,
        longest=LONGEST,
        choices=choices(lines, query),
        boxes=[ColumnBox(column, _is_wanted(column, query)) for column in available],
        kept={name: value for name, value in kept.items() if value},
        defaults=",".join(column.key for column in available if column.shown),
    )


def _heading(query: Query, column: Column) -> ColumnHeading:
    rising, falling = column.key, f"-{column.key}"
    first, second = (falling, rising) if column.falling else (rising, falling)
    following = {"": first, first: second, second: ""}
    now = query.sort if query.sort in following else ""
    href = f"{replace(query, sort=following[now]).url}{_TABLE}" if column.rank else ""
    return ColumnHeading(column, href, {rising: "ascending", falling: "descending"}.get(now, ""))
