"""A whole dashboard: common settings, rows, and JSON."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias

from grafana_foundation_sdk.builders import bargauge, dashboard, stat, statetimeline, table, text, timeseries
from grafana_foundation_sdk.builders.dashboard import (
    CustomVariable,
    DatasourceVariable,
    QueryVariable,
    TextBoxVariable,
)
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import (
    Dashboard,
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    RowPanel,
)

TAG = "gpuslice"
# The schema version of Grafana 10.0; later releases convert it at import.
SCHEMA = 38

Panel: TypeAlias = (
    timeseries.Panel | stat.Panel | bargauge.Panel | table.Panel | text.Panel | statetimeline.Panel
)
Variable: TypeAlias = DatasourceVariable | QueryVariable | TextBoxVariable | CustomVariable


@dataclass(frozen=True, slots=True)
class Folded:
    """A row that is collapsed at first."""

    title: str
    panels: Sequence[Panel]
    repeat: str | None = None
    """Name of a variable; the row is repeated for each of its values."""


def board(
    uid: str,
    title: str,
    description: str,
    variables: Sequence[Variable],
    rows: Sequence[tuple[str, Sequence[Panel]] | Folded],
) -> Dashboard:
    """Return a dashboard of rows: each has a title and panels, laid out from left to right."""
    made = (
        dashboard.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags([TAG])
        .readonly()
        .timezone("browser")
        .time("now-6h", "now")
        .refresh("1m")
        .annotation(
            dashboard.AnnotationQuery()
            .name("Annotations & Alerts")
            .type("dashboard")
            .built_in(1)
            .datasource(DataSourceRef(type_val="grafana", uid="-- Grafana --"))
            .enable(True)
            .hide(True)
            .icon_color("rgba(0, 211, 255, 1)")
        )
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .link(
            dashboard.DashboardLink("GPU slices")
            .type(DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .as_dropdown(False)
            .include_vars(True)
            .keep_time(True)
        )
    )
    for variable in variables:
        made.with_variable(variable)
    for row in rows:
        if isinstance(row, Folded):
            made.with_row(_folded(row))
            continue
        name, panels = row
        made.with_row(dashboard.Row(name))
        for panel in panels:
            made.with_panel(panel)
    built = made.build()
    built.schema_version = SCHEMA
    _number(built)
    return built


def written(made: Dashboard) -> str:
    """Return a dashboard as JSON for Grafana's import."""
    value: Any = json.loads(JSONEncoder(sort_keys=True).encode(made))
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _folded(row: Folded) -> dashboard.Row:
    made = dashboard.Row(row.title).collapsed(True)
    if row.repeat is not None:
        made.repeat(row.repeat)
    for panel in row.panels:
        made.with_panel(panel)
    return made


def _number(built: Dashboard) -> None:
    """Set the ids of all panels, also of those in collapsed rows."""
    numbers = count(1)
    for panel in built.panels or ():
        panel.id_val = next(numbers)
        if isinstance(panel, RowPanel):
            for inner in panel.panels:
                inner.id_val = next(numbers)
