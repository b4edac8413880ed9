"""Tables: rows merged from several queries, in columns of fixed width; unknown values say so."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from grafana_foundation_sdk.builders import common, table
from grafana_foundation_sdk.models.dashboard import (
    DataTransformerConfig,
    DynamicConfigValue,
    SpecialValueMap,
    SpecialValueMatch,
    ValueMap,
    ValueMappingResult,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.panels import NEUTRAL, UNKNOWN, Query, Words, colours, special, targets, wording
from dashboards.variables import DATASOURCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table."""

    name: str
    """A label, or ``Value #A`` for the value of the first query, ``Value #B`` for that of the second, …"""
    title: str
    unit: str | None = None
    """Grafana's unit of a number; None for text."""
    numeric: bool = False
    """Whether the texts are numbers, by which a table is sorted then."""
    link: str | None = None
    """See ``leads_to``. Cells without a value have no text to click."""
    width: int | None = None
    """In pixels. None for the column that gets the rest."""
    empty: str = UNKNOWN
    """Text of a cell without a value."""
    words: Words | None = None
    """Texts for single values."""
    steps: Mapping[float, str] = field(default_factory=dict)
    """Text colours, each from a value on."""
    colours: Mapping[str, str] = field(default_factory=dict)
    """Text colours of single texts."""
    gauge: bool = False
    """Whether a share is drawn as a bar from 0 to 1."""


def leads_to(uid: str, **variables: str) -> str:
    """Return a link to a dashboard that sets each variable from the row's cell in the column of that title.

    Titles must be one word. Clusters, data source and time range are kept.
    """
    kept = ("${__url_time_range}", "${datasource:queryparam}", "${cluster:queryparam}")
    chosen = (f"var-{name}=${{__data.fields.{title}}}" for name, title in variables.items())
    return f"/d/{uid}?{'&'.join((*kept, *chosen))}"


# Pixels of the arrow beside the title of a column by which a table is sorted.
ARROW = 24

# Columns of labels, the same in all tables.
CLUSTER = Column(name="cluster", title="Cluster", width=95, empty="-")
NODE = Column(name="node", title="Node", width=140, empty="", link=leads_to("gpuslice-node", node="Node"))
GPU = Column(
    name="gpu",
    title="GPU",
    numeric=True,
    width=60,
    empty="",
    link=leads_to("gpuslice-hardware", node="Node", gpu="GPU"),
)
NAMESPACE = Column(
    name="namespace",
    title="Namespace",
    width=130,
    empty="",
    link=leads_to("gpuslice-tenant", namespace="Namespace"),
)
POD = Column(
    name="pod",
    title="Pod",
    width=170,
    empty="",
    link=leads_to("gpuslice-tenant", namespace="Namespace", pod="Pod"),
)
CONTAINER = Column(name="container", title="Container", width=110, empty="-")
MODEL = Column(name="model", title="Model", width=210)
MIG_DEVICE = Column(name="mig_uuid", title="MIG device", empty="-")


def number(place: str, title: str, unit: str = "none", **settings: object) -> Column:
    """Return the column of the values of a query ("A" is the first one), as wide as its title needs."""
    width = max(80, 30 + round(7.5 * len(title)))
    return replace(Column(name=f"Value #{place}", title=title, unit=unit, width=width), **settings)  # type: ignore[arg-type]


def listing(
    title: str,
    description: str,
    columns: Sequence[Column],
    *queries: str,
    sort: str | Sequence[str] | None = None,
    span: int = 24,
    height: int = 8,
) -> table.Panel:
    """Return a table. Rows of several queries are merged if all their labels are the same.

    A query may have more labels than others if it has one row for each of theirs. Only ``columns`` are shown,
    in their order. ``sort`` is the title of a column, largest values first, or the titles of several, by
    their texts.
    """
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
        .filterable(False)
    )
    for kind, settings in _transformations(columns):
        panel.with_transformation(DataTransformerConfig(id_val=kind, options=settings))
    panel.override_by_field_type("number", [DynamicConfigValue(id_val="mappings", value=_mappings({}))])
    titles = [sort] if (largest := isinstance(sort, str)) else sort or ()
    for column in columns:
        wider = column.width and column.width + ARROW * (column.title in titles)
        panel.override_by_name(column.title, _properties(replace(column, width=wider)))
    if titles:
        panel.sort_by([common.TableSortByFieldState().display_name(each).desc(largest) for each in titles])
    for target in targets([Query(expr) for expr in queries]):
        panel.with_target(target.instant().format(PromQueryFormat.TABLE))
    return panel


def _transformations(columns: Sequence[Column]) -> Sequence[tuple[str, object]]:
    order = {
        "indexByName": {column.name: place for place, column in enumerate(columns)},
        "renameByName": {column.name: column.title for column in columns},
        "includeByName": {},
        "excludeByName": {"Time": True},
    }
    shown = {"include": {"names": [column.title for column in columns]}}
    numbers = [
        {"targetField": column.title, "destinationType": "number"} for column in columns if column.numeric
    ]
    return (
        ("merge", {}),
        ("organize", order),
        ("filterFieldsByName", shown),
        *((("convertFieldType", {"conversions": numbers}),) if numbers else ()),
    )


def _properties(column: Column) -> list[DynamicConfigValue]:
    found: dict[str, object] = {"noValue": column.empty}
    if column.unit is not None:
        found["unit"] = column.unit
    elif not column.colours:
        found["custom.filterable"] = True
    if column.numeric:
        found["custom.align"] = "left"
    if column.width is not None:
        found["custom.width"] = column.width
    if column.words is not None or column.colours:
        found["mappings"] = _mappings(column.words or {}, column.colours)
    if column.steps or column.colours:
        found["thresholds"] = colours(column.steps or {0: NEUTRAL}).build()
    if column.words is not None or column.steps or column.colours:
        found |= {"color": {"mode": "thresholds"}, "custom.cellOptions": {"type": "color-text"}}
    if column.gauge:
        found |= {"min": 0, "max": 1, "custom.cellOptions": {"type": "gauge", "mode": "basic"}}
        found["color"] = {"mode": "fixed", "fixedColor": "blue"}
    if column.link is not None:
        link = {"title": f"Show {column.title}", "url": column.link, "targetBlank": False}
        found["links"] = [link]
    return [DynamicConfigValue(id_val=name, value=value) for name, value in found.items()]


def _mappings(words: Words, texts: Mapping[str, str] | None = None) -> list[SpecialValueMap | ValueMap]:
    """Return mappings: null in the colour of text, NaN as a dash, and the words or texts of a column."""
    found: list[SpecialValueMap | ValueMap] = [special(SpecialValueMatch.NULL, NEUTRAL)]
    if texts:
        # Text is not a number: a mapping of NaN would hide it.
        results = {text: ValueMappingResult(color=colour) for text, colour in texts.items()}
        return [*found, ValueMap(options=results)]
    found.append(special(SpecialValueMatch.NA_N, NEUTRAL, "-"))
    return [*found, wording(words)] if words else found
