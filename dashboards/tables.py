"""Tables: rows of several queries put together, with columns in an order, and unknown as unknown."""

from collections.abc import Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import common, table
from grafana_foundation_sdk.models.dashboard import DataTransformerConfig, DynamicConfigValue
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.panels import UNKNOWN, Query, targets
from dashboards.variables import DATASOURCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table: what it is called, and its unit where it is a number.

    ``name`` is the name of a label, or ``Value #A`` for the value of the first query, ``Value #B`` for that of
    the second, and so on. ``link`` is where a click leads: /d/<uid>?var-x=${__data.fields.<title>}.
    """

    name: str
    title: str
    unit: str | None = None
    link: str | None = None
    width: int | None = None


def listing(
    title: str,
    description: str,
    columns: Sequence[Column],
    *queries: Query,
    sort: str | None = None,
    span: int = 24,
    height: int = 10,
) -> table.Panel:
    """List rows: those of several queries are put together where all their labels are the same.

    So each query must leave the same labels. Only ``columns`` are shown, in their order; ``sort`` is the title
    of the one whose largest values stand first. An empty cell was not known.
    """
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
    for column in columns:
        if properties := _properties(column):
            panel.override_by_name(column.title, properties)
    if sort is not None:
        panel.sort_by([common.TableSortByFieldState().display_name(sort).desc(True)])
    for target in targets(queries):
        panel.with_target(target.instant().format(PromQueryFormat.TABLE))
    return panel


def _properties(column: Column) -> list[DynamicConfigValue]:
    found = [DynamicConfigValue(id_val="noValue", value=UNKNOWN)]
    if column.unit is not None:
        found.append(DynamicConfigValue(id_val="unit", value=column.unit))
    if column.width is not None:
        found.append(DynamicConfigValue(id_val="custom.width", value=column.width))
    if column.link is not None:
        link = {"title": f"Show {column.title}", "url": column.link, "targetBlank": False}
        found.append(DynamicConfigValue(id_val="links", value=[link]))
    return found


def _transformation(kind: str, settings: object) -> DataTransformerConfig:
    return DataTransformerConfig(id_val=kind, options=settings)
