"""A dashboard as a whole: what all of them have, and how it is written."""

import json
from collections.abc import Sequence
from typing import Any, TypeAlias

from grafana_foundation_sdk.builders import bargauge, dashboard, stat, table, text, timeseries
from grafana_foundation_sdk.builders.dashboard import DatasourceVariable, QueryVariable, TextBoxVariable
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard, DashboardCursorSync, DashboardLinkType

TAG = "gpuslice"
# What Grafana 10.0 writes; later ones bring it to their own when they import it.
SCHEMA = 38

Panel: TypeAlias = timeseries.Panel | stat.Panel | bargauge.Panel | table.Panel | text.Panel
Variable: TypeAlias = DatasourceVariable | QueryVariable | TextBoxVariable


def board(
    uid: str,
    title: str,
    description: str,
    variables: Sequence[Variable],
    rows: Sequence[tuple[str, Sequence[Panel]]],
) -> Dashboard:
    """Make a dashboard of rows: each a title and its panels, which are laid out from left to right."""
    made = (
        dashboard.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags([TAG])
        .readonly()
        .timezone("browser")
        .time("now-6h", "now")
        .refresh("1m")
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
    for name, panels in rows:
        made.with_row(dashboard.Row(name))
        for panel in panels:
            made.with_panel(panel)
    built = made.build()
    built.schema_version = SCHEMA
    for number, made_panel in enumerate(built.panels or (), start=1):
        made_panel.id_val = number
    return built


def written(made: Dashboard) -> str:
    """Write it as Grafana imports it."""
    value: Any = json.loads(JSONEncoder(sort_keys=True).encode(made))
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
