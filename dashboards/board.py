"""A whole dashboard: common settings, rows, and JSON."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias

from grafana_foundation_sdk.builders import dashboard, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.builders.dashboard import (
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

from dashboards.selectors import GPU, NODES
from dashboards.variables import DATASOURCE

TAG = "gpuslice"
# The schema version of Grafana 10.0; later releases convert it at import.
SCHEMA = 38

Panel: TypeAlias = timeseries.Panel | stat.Panel | table.Panel | statetimeline.Panel
Variable: TypeAlias = DatasourceVariable | QueryVariable | TextBoxVariable


@dataclass(frozen=True, slots=True)
class Folded:
    """A row that is collapsed at first."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True)
class Mark:
    """Events of the chosen nodes that are marked in all timelines."""

    name: str
    expr: str
    """Has a result while an event happens."""
    title: str
    """Text of a mark; ``{{label}}`` is the value of a label."""


_MIGS = f"count by (cluster, node, gpu) (gpuslice_mig_info{{{NODES}}}"
MARKS = (
    Mark(
        "XID errors",
        f"increase(gpuslice_gpu_xid_errors_total{{{NODES}}}[$__rate_interval]) > 0",
        f"XID: {GPU}",
    ),
    Mark("MIG layout", f"{_MIGS}) != {_MIGS} offset $__rate_interval)", f"MIG layout changed: {GPU}"),
)


def board(
    uid: str,
    title: str,
    description: str,
    variables: Sequence[Variable],
    rows: Sequence[tuple[str, Sequence[Panel]] | Folded],
    *,
    marked: bool = False,
) -> Dashboard:
    """Return a dashboard of rows: each has a title and panels, laid out from left to right.

    ``marked`` dashboards have a variable of nodes, whose events are marked in timelines.
    """
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
    for mark in MARKS if marked else ():
        made.annotation(_annotation(mark))
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
    # The typed model has no text of a mark.
    titles = {mark.name: {"titleFormat": mark.title} for mark in MARKS}
    for annotation in value["annotations"]["list"]:
        annotation.update(titles.get(annotation["name"], {}))
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _annotation(mark: Mark) -> dashboard.AnnotationQuery:
    return (
        dashboard.AnnotationQuery()
        .name(mark.name)
        .datasource(DATASOURCE)
        .enable(True)
        .icon_color("orange")
        .expr(mark.expr)
    )


def _folded(row: Folded) -> dashboard.Row:
    made = dashboard.Row(row.title).collapsed(True)
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
