"""Kinds of panels, with a unit, a description, and unknown values shown as unknown.

``span`` is the width of a panel in columns, 24 at most; ``height`` its height in Grafana's rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    prometheus,
    stat,
    statetimeline,
    timeseries,
)
from grafana_foundation_sdk.models import common as options
from grafana_foundation_sdk.models.dashboard import (
    DashboardSpecialValueMapOptions,
    DynamicConfigValue,
    FieldColorModeId,
    SpecialValueMap,
    SpecialValueMatch,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMappingResult,
)

from dashboards.variables import DATASOURCE

UNKNOWN = "unknown"
Framed = TypeVar("Framed", timeseries.Panel, statetimeline.Panel, stat.Panel)

# Shortest step of a rate of energy, which the exporter reads every 15 s: a window has several readings in it.
ENERGY_STEP = "1m"
# Colours, the same on all dashboards.
CAPACITY = "#8e8e8e"
HELD = "blue"
USED = "green"
IDLE = "yellow"
FREE = "super-light-blue"
UNATTRIBUTED = "purple"
GOOD = "green"
WARNING = "orange"
BAD = "red"
NEUTRAL = "text"
_GAP = "transparent"

# Text and colour by value.
Words: TypeAlias = Mapping[int, tuple[str, str]]
YES_IS_GOOD: Words = {1: ("yes", GOOD), 0: ("no", BAD)}
YES_IS_BAD: Words = {1: ("yes", BAD), 0: ("no", GOOD)}
HEALTHY: Words = {1: ("unhealthy", BAD), 0: ("healthy", GOOD)}
SUCCESS: Words = {1: ("answers", GOOD), 0: ("fails", BAD)}
ON_OFF: Words = {1: ("on", NEUTRAL), 0: ("off", NEUTRAL)}


@dataclass(frozen=True, slots=True)
class Query:
    """A query of a panel."""

    expr: str
    legend: str = "__auto"
    """Name of its series; ``{{label}}`` is the value of a label."""
    colour: str | None = None
    """Colour of all its series in a timeline."""
    limit: bool = False
    """Whether to draw dashed lines that are not stacked, as for a capacity."""


def timeline(
    title: str,
    unit: str,
    description: str,
    *queries: Query,
    stacked: bool = False,
    top: float | None = None,
    span: int = 12,
    height: int = 8,
) -> timeseries.Panel:
    """Return a panel of series over time, with gaps if unknown. The axis reaches up to ``top`` at least."""
    panel = (
        _framed(timeseries.Panel(), title, unit, description)
        .span(span)
        .height(height)
        .min(0)
        .span_nulls(False)
        .show_points(options.VisibilityMode.AUTO)
        .fill_opacity(40 if stacked else 0)
        .color_scheme(dashboard.FieldColor().mode(FieldColorModeId.PALETTE_CLASSIC))
        .tooltip(
            common.VizTooltipOptions()
            .mode(options.TooltipDisplayMode.MULTI)
            .sort(options.SortOrder.DESCENDING)
        )
        .legend(
            common.VizLegendOptions()
            .display_mode(options.LegendDisplayMode.LIST)
            .placement(options.LegendPlacement.BOTTOM)
            .show_legend(True)
            # A series for each of many things has no room for its value.
            .calcs([] if any("{{" in query.legend for query in queries) else ["lastNotNull"])
        )
    )
    if stacked:
        panel.stacking(common.StackingConfig().mode(options.StackingMode.NORMAL).group("A"))
    if top is not None:
        panel.axis_soft_max(top)
    for place, query in enumerate(queries):
        if properties := _drawn(query):
            panel.override_by_query(_ref(place), properties)
    for target in targets(queries):
        panel.with_target(target.range())
    return panel


def states(
    title: str, description: str, words: Words, *queries: Query, span: int = 12, height: int = 8
) -> statetimeline.Panel:
    """Return a panel with a band for each series, in the colours of ``words``; an unknown value is a gap."""
    panel = (
        _framed(statetimeline.Panel(), title, "none", description)
        .span(span)
        .height(height)
        .mappings([wording(words)])
        # In the mode "thresholds" Grafana merges all values of a step and ignores the mappings.
        .color_scheme(dashboard.FieldColor().mode(FieldColorModeId.FIXED).fixed_color(_GAP))
        .show_value(options.VisibilityMode.NEVER)
        .merge_values(True)
        .row_height(0.8)
        .fill_opacity(70)
        .line_width(0)
        .tooltip(common.VizTooltipOptions().mode(options.TooltipDisplayMode.SINGLE))
        .legend(
            common.VizLegendOptions()
            .display_mode(options.LegendDisplayMode.LIST)
            .placement(options.LegendPlacement.BOTTOM)
            .show_legend(True)
        )
    )
    for target in targets(queries):
        panel.with_target(target.range())
    return panel


def number(
    title: str,
    unit: str,
    description: str,
    expr: str,
    *,
    steps: Mapping[float, str] | None = None,
    words: Words | None = None,
    trend: bool = False,
    span: int = 4,
    height: int = 4,
) -> stat.Panel:
    """Return a panel of one current number, with a line of the past if ``trend``.

    ``steps`` has colours, each from a value on: {0: GOOD, 1: BAD}; ``words`` texts for single values.
    """
    panel = (
        _framed(stat.Panel(), title, unit, description)
        .span(span)
        .height(height)
        .mappings([_unknown(), wording(words)] if words else [_unknown()])
        .graph_mode(options.BigValueGraphMode.AREA if trend else options.BigValueGraphMode.NONE)
        .color_mode(options.BigValueColorMode.VALUE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False).fields(""))
        .color_scheme(dashboard.FieldColor().mode(FieldColorModeId.THRESHOLDS))
        .thresholds(colours(steps or {0: NEUTRAL}))
    )
    if words:
        panel.text(common.VizTextDisplayOptions().value_size(28))
    for target in targets([Query(expr)]):
        panel.with_target(target.range() if trend else target.instant())
    return panel


def colours(steps: Mapping[float, str]) -> dashboard.ThresholdsConfig:
    """Return colours, each from a value on; the lowest step also applies below it."""
    (_, first), *others = sorted(steps.items())
    thresholds = [
        Threshold(value=None, color=first),
        *(Threshold(value=value, color=color) for value, color in others),
    ]
    return dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(thresholds)


def targets(queries: Sequence[Query]) -> list[prometheus.Dataquery]:
    """Return the queries of a panel; the caller sets whether each is instant or a range."""
    return [
        prometheus.Dataquery()
        .expr(query.expr)
        .legend_format(query.legend)
        .ref_id(_ref(place))
        .datasource(DATASOURCE)
        for place, query in enumerate(queries)
    ]


def wording(words: Words) -> ValueMap:
    """Return a mapping of values to texts and colours."""
    return ValueMap(
        options={
            str(value): ValueMappingResult(text=text, color=colour, index=place)
            for place, (value, (text, colour)) in enumerate(words.items())
        }
    )


def _framed(panel: Framed, title: str, unit: str, description: str) -> Framed:
    """Return a panel with the settings that all have."""
    return panel.title(title).description(description).unit(unit).datasource(DATASOURCE).no_value(UNKNOWN)


def _ref(place: int) -> str:
    return chr(ord("A") + place)


def _drawn(query: Query) -> list[DynamicConfigValue]:
    found = []
    if query.colour is not None:
        found.append(DynamicConfigValue(id_val="color", value={"mode": "fixed", "fixedColor": query.colour}))
    if query.limit:
        found += [
            DynamicConfigValue(id_val="custom.lineStyle", value={"fill": "dash", "dash": [6, 6]}),
            DynamicConfigValue(id_val="custom.fillOpacity", value=0),
            DynamicConfigValue(id_val="custom.stacking", value={"mode": "none", "group": "A"}),
        ]
    return found


def special(match: SpecialValueMatch, colour: str, text: str | None = None) -> SpecialValueMap:
    """Return a mapping of null or NaN to a colour; without ``text`` Grafana shows the field's noValue."""
    result = ValueMappingResult(text=text, color=colour)
    return SpecialValueMap(options=DashboardSpecialValueMapOptions(match=match, result=result))


def _unknown() -> SpecialValueMap:
    return special(SpecialValueMatch.NULL_AND_NAN, NEUTRAL, UNKNOWN)
