"""The table of holders: one row per container and device, in the order of the snapshot if not sorted."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from exporter.formats.wording import plural
from exporter.model import ContainerRow
from exporter.model.states import STATE_WORDS
from exporter.web.html import escape_controls, piece
from exporter.web.pages.holders_table.cells_html import Line, line_of, row_id
from exporter.web.pages.holders_table.columns import HOLDER, Column, columns, defaults, in_order
from exporter.web.pages.holders_table.filters import Choice, choices, chosen
from exporter.web.pages.place import LONGEST, Query
from exporter.web.pages.scene import Scene

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
    available = columns(scene)
    query, notes = _understood(scene.query, available)
    lines = [line_of(scene, row) for row in containers]
    shown = chosen(lines, query) if query.filters else lines
    column = next((column for column in available if column.key == query.sort.removeprefix("-")), None)
    if column and column.rank:
        shown = in_order(shown, column.rank, falling=query.sort.startswith("-"))
    wanted = {HOLDER, *(query.columns or defaults())}
    drawn = [column for column in available if column.key in wanted]
    every = f"{replace(query, text='', namespace='', gpu='', state='').url}{_TABLE}"
    count = Count(
        total=plural(len(lines), "holder"),
        shown=len(shown) if query.filters else None,
        all_href=every,
        notes=notes,
    )
    rows = _rows(shown, drawn)
    pieces = {
        "holders-form": piece(
            "pieces/holders.html", "form_of", _form(lines, query, available) if lines else None
        ),
        "holders-count": piece("pieces/holders.html", "count_of", count),
        "holders-head": piece(
            "pieces/holders.html", "head_of", [_heading(query, column) for column in drawn]
        ),
        "holders-unmatched": piece(
            "pieces/holders.html", "unmatched_of", count if lines and not shown else None
        ),
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
        columns=() if wanted == tuple(key for key in defaults() if key in keys) else wanted,
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
    wanted = query.columns or defaults()
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
        defaults=",".join(box.key for box in boxes if box.key in defaults()),
    )


def _heading(query: Query, column: Column) -> Heading:
    rising, falling = column.key, f"-{column.key}"
    first, second = (falling, rising) if column.falling else (rising, falling)
    following = {"": first, first: second, second: ""}
    now = query.sort if query.sort in following else ""
    href = f"{replace(query, sort=following[now]).url}{_TABLE}" if column.rank else ""
    sort = {rising: "ascending", falling: "descending"}.get(now, "")
    return Heading(column.key, column.name, column.title, href, sort)
