"""Tables: rows merged from several queries, ordered columns, and unknown values shown as unknown."""

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
    """A column of a table."""

    name: str
    """A label, or ``Value #A`` for the value of the first query, ``Value #B`` for that of the second, …"""
    title: str
    unit: str | None = None
    """Grafana's unit of a number; None for text."""
    link: str | None = None
    """See ``leads_to``."""
    width: int | None = None
    """In pixels; by default a number is as wide as it needs, and text gets the rest."""
    empty: str = UNKNOWN
    """Text of a cell without a value."""
    hidden: bool = False
    """Whether it is only used by links."""
    words: Words | None = None
    """Texts for single values."""
    steps: Mapping[float, str] = field(default_factory=dict)
    """Text colours, each from a value on."""


# Links of rows without a uuid lead to all GPUs.
HIDDEN_UUID = Column(name="uuid", title="UUID", hidden=True, empty="$__all")


def setting(query: Query, label: str, variable: str) -> tuple[Query, Column]:
    """Return the query with a label that sets a variable in links, and the hidden column of that label.

    Rows without a value of ``label`` leave the variable as it is. Pass the column's title to ``leads_to``.
    """
    name = f"of_{variable}"
    expr = f'label_replace({query.expr}, "{name}", "var-{variable}=$1", "{label}", "(.+)")'
    return replace(query, expr=expr), Column(name=name, title=name, hidden=True, empty="")


@dataclass(frozen=True, slots=True)
class Nothing:
    """The row of an empty table, returned by a query since Grafana before 11.2 ignores noValue."""

    label: str
    """Label with the text in its column."""
    known: str
    """PromQL; without a result the text is UNKNOWN."""
    text: str = "none"


# Widths in pixels: a letter of a heading; edges and the icons for sorting and filtering; the minimum.
_LETTER, _BESIDE, _NARROWEST = 8, 36, 100


def leads_to(uid: str, *settings: str, **variables: str) -> str:
    """Return a link to a dashboard that sets each variable from the row's cell in the column of that title.

    Titles must be one word. Cells of the columns ``settings`` contain a setting ("var-node=a") or are empty:
    see ``setting``. Clusters, data source and time range are kept.
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
    """Return a table. Rows of several queries are merged if all their labels are the same.

    A query may have more labels than others if it has one row for each of theirs. Only ``columns`` are shown,
    in their order. ``sort`` is the title of a column, largest values first, or the titles of several, by
    their texts. Without rows, the table has the text of ``nothing``, or UNKNOWN.
    """
    queries = tuple(_with_nothing(columns, queries, nothing))
    if len(queries) == 1:
        # Grafana numbers values only if there are several queries.
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
