"""The kinds of panels, as all dashboards have them: with a unit, a description, and unknown as unknown.

A panel is 24 columns wide at most; ``span`` is its width, ``height`` its height in Grafana's rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.models import common as options
from grafana_foundation_sdk.models.dashboard import (
    DashboardSpecialValueMapOptions,
    FieldColorModeId,
    SpecialValueMap,
    SpecialValueMatch,
    Threshold,
    ThresholdsMode,
    ValueMappingResult,
)

from dashboards.variables import DATASOURCE

UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Query:
    """A query: its expression, and how its series are called (``{{label}}`` stands for a label's value)."""

    expr: str
    legend: str = "__auto"


def timeline(
    title: str,
    unit: str,
    description: str,
    *queries: Query,
    stacked: bool = False,
    span: int = 12,
    height: int = 8,
) -> timeseries.Panel:
    """Draw series over time; what is not known is a gap."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .unit(unit)
        .datasource(DATASOURCE)
        .span(span)
        .height(height)
        .no_value(UNKNOWN)
        .min(0)
        .span_nulls(False)
        .show_points(options.VisibilityMode.AUTO)
        .fill_opacity(40 if stacked else 8)
        .tooltip(
            common.VizTooltipOptions()
            .mode(options.TooltipDisplayMode.MULTI)
            .sort(options.SortOrder.DESCENDING)
        )
        .legend(
            common.VizLegendOptions()
            .display_mode(options.LegendDisplayMode.TABLE)
            .placement(options.LegendPlacement.BOTTOM)
            .show_legend(True)
            .calcs(["lastNotNull", "max"])
        )
    )
    if stacked:
        panel.stacking(common.StackingConfig().mode(options.StackingMode.NORMAL).group("A"))
    for target in targets(queries):
        panel.with_target(target.range())
    return panel


def number(
    title: str,
    unit: str,
    description: str,
    query: Query,
    *,
    steps: dict[float, str] | None = None,
    span: int = 4,
    height: int = 4,
) -> stat.Panel:
    """Show one number of now. ``steps`` gives colours from values on: {0: "green", 1: "red"}."""
    panel = (
        stat.Panel()
        .title(title)
        .description(description)
        .unit(unit)
        .datasource(DATASOURCE)
        .span(span)
        .height(height)
        .no_value(UNKNOWN)
        .mappings([_unknown()])
        .graph_mode(options.BigValueGraphMode.NONE)
        .color_mode(options.BigValueColorMode.VALUE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False).fields(""))
        .color_scheme(dashboard.FieldColor().mode(FieldColorModeId.THRESHOLDS))
        .thresholds(colours(steps or {0: "text"}))
    )
    for target in targets([query]):
        panel.with_target(target.instant())
    return panel


def bars(
    title: str, unit: str, description: str, *queries: Query, span: int = 12, height: int = 8
) -> bargauge.Panel:
    """Show a bar for each series of now."""
    panel = (
        bargauge.Panel()
        .title(title)
        .description(description)
        .unit(unit)
        .datasource(DATASOURCE)
        .span(span)
        .height(height)
        .no_value(UNKNOWN)
        .min(0)
        .mappings([_unknown()])
        .display_mode(options.BarGaugeDisplayMode.BASIC)
        .orientation(options.VizOrientation.HORIZONTAL)
        .value_mode(options.BarGaugeValueMode.TEXT)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False).fields(""))
        .color_scheme(dashboard.FieldColor().mode(FieldColorModeId.PALETTE_CLASSIC_BY_NAME))
    )
    for target in targets(queries):
        panel.with_target(target.instant())
    return panel


def colours(steps: dict[float, str]) -> dashboard.ThresholdsConfig:
    """Colour values from each of some on; the lowest step holds below it too."""
    (_, first), *others = sorted(steps.items())
    found = [
        Threshold(value=None, color=first),
        *(Threshold(value=value, color=color) for value, color in others),
    ]
    return dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(found)


def targets(queries: Sequence[Query]) -> list[prometheus.Dataquery]:
    """Make the queries of a panel; whoever calls says whether each is of now or of a range."""
    return [
        prometheus.Dataquery()
        .expr(query.expr)
        .legend_format(query.legend)
        .ref_id(chr(ord("A") + place))
        .datasource(DATASOURCE)
        for place, query in enumerate(queries)
    ]


def _unknown() -> SpecialValueMap:
    result = ValueMappingResult(text=UNKNOWN, color="text")
    return SpecialValueMap(
        options=DashboardSpecialValueMapOptions(match=SpecialValueMatch.NULL_AND_NAN, result=result)
    )
