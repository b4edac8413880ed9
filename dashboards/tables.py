"""Tables: rows of several queries put together, with columns in an order, and unknown as unknown."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from grafana_foundation_sdk.builders import common, table
from grafana_foundation_sdk.models.dashboard import (
    DataTransformerConfig,
    DynamicConfigValue,
    SpecialValueMap,
    SpecialValueMatch,
    ValueMap,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.panels import NEUTRAL, UNKNOWN, Query, Words, colours, row, special, targets, wording
from dashboards.variables import DATASOURCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table: what it is called, and its unit where it is a number.

    ``name`` is the name of a label, or ``Value #A`` for the value of the first query, ``Value #B`` for that
    of the second, and so on. ``link`` is where a click leads, see ``leads_to``. ``empty`` stands in a cell of
    which nothing is known. A number takes no more room than it needs, unless a ``width`` (in pixels) is
    given; what is left goes to columns of text. A hidden column is there for links. ``words`` are what single
    values stand for, ``steps`` the colours of the text from values on.
    """

    name: str
    title: str
    unit: str | None = None
    link: str | None = None
    width: int | None = None
    empty: str = UNKNOWN
    hidden: bool = False
    words: Words | None = None
    steps: Mapping[float, str] = field(default_factory=dict)


# Links of rows without a uuid lead to all GPUs.
HIDDEN_UUID = Column(name="uuid", title="UUID", hidden=True, empty="$__all")


def setting(query: Query, label: str, variable: str) -> tuple[Query, Column]:
    """Return the query with a label that sets a variable in links, and the hidden column of that label.

    Rows without a value of ``label`` leave the variable as it is. ``leads_to`` takes the column's title.
    """
    name = f"of_{variable}"
    expr = f'label_replace({query.expr}, "{name}", "var-{variable}=$1", "{label}", "(.+)")'
    return replace(query, expr=expr), Column(name=name, title=name, hidden=True, empty="")


@dataclass(frozen=True, slots=True)
class Nothing:
    """The row of a table that lists nothing. A query returns it: Grafana ignores noValue before 11.2.

    The column of ``label`` has ``text`` if the query ``known`` has a result, else UNKNOWN.
    """

    label: str
    known: str
    text: str = "none"


# Of a letter of a heading; and of what is beside it: the edges, and the signs for order and filter.
_LETTER, _BESIDE, _NARROWEST = 8, 36, 100


def leads_to(uid: str, *settings: str, **variables: str) -> str:
    """Make a link to a dashboard: each variable is set from the row's cell in the column of that one word.

    Cells of the columns ``settings`` set a variable ("var-node=a") or are empty: see ``setting``. The
    clusters, the source of data and the times stay as they were chosen.
    """
    kept = ("${__url_time_range}", "${datasource:queryparam}", "${cluster:queryparam}")
    chosen = (f"var-{name}=${{__data.fields.{title}}}" for name, title in variables.items())
    whole = (f"${{__data.fields.{title}}}" for title in settings)
    return f"/d/{uid}?{'&'.join((*kept, *chosen, *whole))}"


def listing(
    title: str,
    description: str,
    columns: Sequence[Column],
    *queries: Query,
    sort: str | Sequence[str] | None = None,
    span: int = 24,
    height: int = 10,
    nothing: Nothing | None = None,
) -> table.Panel:
    """List rows: those of several queries are put together where all their labels are the same.

    A query may leave more labels than others if it has one row where they have one. Only ``columns`` are
    shown, in their order; ``sort`` is the title of the one whose largest values stand first, or the titles of
    several by whose texts rows are put in order. Without rows it says that ``nothing`` is listed, or that
    this is unknown.
    """
    queries = tuple(_with_nothing(columns, queries, nothing))
    if len(queries) == 1:
        # Grafana numbers values only where there are several queries.
        columns = [replace(column, name=column.name.removesuffix(" #A")) for column in columns]
    panel = (
        table.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .span(span)
        .height(height)
        .no_value(UNKNOWN)
        .filterable(True)
        .with_transformation(_transformation("merge", {}))
        .with_transformation(
            _transformation(
                "organize",
                {
                    "indexByName": {column.name: place for place, column in enumerate(columns)},
                    "renameByName": {column.name: column.title for column in columns},
                    "includeByName": {},
                    "excludeByName": {"Time": True},
                },
            )
        )
        .with_transformation(
            _transformation(
                "filterFieldsByName", {"include": {"names": [column.title for column in columns]}}
            )
        )
    )
    panel.override_by_field_type("number", [DynamicConfigValue(id_val="mappings", value=_mappings({}))])
    for column in columns:
        panel.override_by_name(column.title, _properties(column))
    if sort is not None:
        titles = [sort] if (largest := isinstance(sort, str)) else sort
        panel.sort_by([common.TableSortByFieldState().display_name(each).desc(largest) for each in titles])
    for target in targets(queries):
        panel.with_target(target.instant().format(PromQueryFormat.TABLE))
    return panel


def _properties(column: Column) -> list[DynamicConfigValue]:
    found = [DynamicConfigValue(id_val="noValue", value=column.empty)]
    if column.unit is not None:
        found.append(DynamicConfigValue(id_val="unit", value=column.unit))
    if (width := _width(column)) is not None:
        found.append(DynamicConfigValue(id_val="custom.width", value=width))
    if column.hidden:
        found.append(DynamicConfigValue(id_val="custom.hidden", value=True))
    if column.words is not None:
        found.append(DynamicConfigValue(id_val="mappings", value=_mappings(column.words)))
    if column.steps:
        found.append(DynamicConfigValue(id_val="thresholds", value=colours(column.steps).build()))
    if column.words is not None or column.steps:
        found.append(DynamicConfigValue(id_val="color", value={"mode": "thresholds"}))
        found.append(DynamicConfigValue(id_val="custom.cellOptions", value={"type": "color-text"}))
    if column.link is not None:
        link = {"title": f"Show {column.title}", "url": column.link, "targetBlank": False}
        found.append(DynamicConfigValue(id_val="links", value=[link]))
    return found


def _mappings(words: Words) -> list[SpecialValueMap | ValueMap]:
    """Return mappings: null in the colour of text, NaN as a dash, and the words of a column."""
    unknown = special(SpecialValueMatch.NULL, NEUTRAL)
    return [unknown, special(SpecialValueMatch.NA_N, NEUTRAL, "-"), *([wording(words)] if words else [])]


def _with_nothing(
    columns: Sequence[Column], queries: Sequence[Query], nothing: Nothing | None
) -> Iterator[Query]:
    """Yield the queries with a row of ``nothing``, which they return if the first has no result."""
    first, *others = queries
    label = nothing.label if nothing else _first_text(columns)
    none = f" or on () {row(f'count({nothing.known}) * NaN', label, nothing.text)}" if nothing else ""
    yield replace(first, expr=f"{first.expr}{none} or on () {row('vector(NaN)', label, UNKNOWN)}")
    for query in others:
        yield replace(query, expr=f"{query.expr}{none} unless on () ({first.expr})") if none else query


def _first_text(columns: Sequence[Column]) -> str:
    """Return the name of the first column of text that has no link and no fixed width."""
    texts = (each for each in columns if not each.name.startswith("Value"))
    return next(each.name for each in texts if not (each.link or each.hidden or each.width))


def _width(column: Column) -> int | None:
    words = [text for text, _ in (column.words or {}).values()]
    if column.width is not None or (column.unit in (None, "dateTimeFromNow") and not words):
        return column.width
    return max(_NARROWEST, _BESIDE + _LETTER * max(map(len, (column.title, *words))))


def _transformation(kind: str, settings: object) -> DataTransformerConfig:
    return DataTransformerConfig(id_val=kind, options=settings)
