"""Timelines as figures of Plotly: dictionaries in the format of plotly.graph_objects, without a template.

Each step is a bar, and the bars of holders are stacked: unlike in an area, an unknown step stays empty, and
is hatched. The page sets the colours. Times are Unix milliseconds.
"""

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from exporter.history import Past, Track
from exporter.web.node.timelines import figure_style
from exporter.web.node.timelines.figure_style import GREY, PANELS, DevicePanel, Style
from exporter.web.node.timelines.stacks import QUANTITIES, Quantity, Stack, Values, added_up, any_known, stack
from exporter.wording import printable

MOST_HOLDERS = 10
# The configuration of Plotly.
CONFIG: Mapping[str, Any] = {"displayModeBar": False, "displaylogo": False, "responsive": True}
_UNATTRIBUTED = Style(GREY, ".", "solid")
_UNASSIGNED = Style(GREY, "/", "solid")
_BETWEEN = 0.07
_DAY = 86400.0
_MOST_TICKS = 6  # with more, labels with hours and minutes would repeat


class DrawnFigure(NamedTuple):
    """A figure for Plotly, with its title and caption."""

    id: str
    title: str
    summary: str  # its newest values as text
    figure: dict[str, Any]


def holder_name(track: Track) -> str:
    """Return the name of the holder of a container's track."""
    labels = track.labels
    return f"{labels['namespace']}/{labels['pod']} {labels['container']}".rstrip()


def node_figures(past: Past, names: Mapping[str, str]) -> list[DrawnFigure]:
    """Return the figures of holders and of devices; ``names`` are those of devices by uuid."""
    return [*_by(past, holder_name, "holder"), _devices(past, names)]


def holder_figures(past: Past, names: Mapping[str, str]) -> list[DrawnFigure]:
    """Return the figures of a holder's use by device, with its entitlement."""
    return _by(past, lambda track: _device_name(track, names), "device")


def _device_name(track: Track, names: Mapping[str, str]) -> str:
    uuid = track.labels.get("mig_uuid") or track.labels["uuid"]
    return names.get(uuid, uuid)


def _by(past: Past, name: Callable[[Track], str], by: str) -> list[DrawnFigure]:
    """Return the figures of memory and compute; a name has the same style in both."""
    stacks = [(quantity, _shortened(stack(past, quantity, name))) for quantity in QUANTITIES]
    shown = figure_style.styles_by_hash(part for _, made in stacks for part in made.stack.parts)
    unknown = {part for _, made in stacks for part in made.stack.unknown}
    called = figure_style.shortest({*shown, *unknown}) if by == "holder" else {}
    return [
        DrawnFigure(
            quantity.name,
            f"{quantity.name.capitalize()} by {by}",
            figure_style.stack_caption(made.stack, made.others, quantity, called),
            _figure(
                past,
                [*_bars(past, made, quantity, shown, called), *_lines(past, made.stack, quantity)],
                quantity,
            ),
        )
        for quantity, made in stacks
    ]


class _Shortened(NamedTuple):
    """A stack with its largest parts only."""

    stack: Stack
    others: Values  # the sum of the other parts
    many: int  # number of the others


def _shortened(made: Stack) -> _Shortened:
    largest = sorted(made.parts, key=lambda name: (-sum(filter(None, made.parts[name])), name))
    # A single further part takes no more room than "1 other".
    kept = largest if len(largest) <= MOST_HOLDERS + 1 else largest[:MOST_HOLDERS]
    rest = [made.parts[name] for name in largest[len(kept) :]]
    parts = {name: made.parts[name] for name in sorted(kept)}
    return _Shortened(replace(made, parts=parts), added_up(rest, len(made.gaps)), len(rest))


def _bars(
    past: Past, made: _Shortened, quantity: Quantity, shown: Mapping[str, Style], called: Mapping[str, str]
) -> list[dict[str, Any]]:
    parts = made.stack
    # The full name of one that is shortened.
    hover = f"%{{y:.2f}} {quantity.unit}<extra>%{{meta}}</extra>"
    own = [
        _bar(past, called.get(name, name), values, shown[name], quantity)
        | ({"meta": text(name), "hovertemplate": hover} if called.get(name, name) != name else {})
        for name, values in parts.parts.items()
    ]
    layers = [
        (f"{made.many} others", made.others, Style(GREY, "", "solid")),
        ("unattributed", parts.unattributed, _UNATTRIBUTED),
        ("used, user unknown", parts.unassigned, _UNASSIGNED),
    ]
    bars = [_bar(past, *layer, quantity) for layer in layers if any_known(layer[1])]
    return [*own, *bars, *_hatched(past, parts.gaps)]


def _bar(past: Past, name: str, values: Values, style: Style, quantity: Quantity) -> dict[str, Any]:
    return {
        "type": "bar",
        "name": text(name),
        **_steps(past),
        "y": _scaled(values, quantity.scale, quantity.digits),
        "width": past.step * 1000,
        "marker": {"color": style.colour, "line": {"width": 0}, "pattern": _pattern(style)},
        "hovertemplate": f"%{{y:.2f}} {quantity.unit}",
    }


def _pattern(style: Style) -> dict[str, Any]:
    over = {"fgcolor": "#fff", "fgopacity": 0.4} if style.pattern else {}
    return {
        "shape": style.pattern,
        "size": 8,
        "solidity": 0.2,
        "fillmode": "replace",
        "bgcolor": style.colour,
        **over,
    }


def _hatched(past: Past, gaps: Sequence[bool]) -> list[dict[str, Any]]:
    """Return the hatching of incomplete steps after the first complete one, without the newest, open one."""
    begin = next((index for index, gap in enumerate(gaps) if not gap), past.count)
    marked = [1 if gap and begin < index < past.count - 1 else None for index, gap in enumerate(gaps)]
    if not any(marked):
        return []
    pattern = {"shape": "/", "size": 7, "solidity": 0.2, "fillmode": "replace", "fgcolor": GREY}
    return [
        {
            "type": "bar",
            "name": "not known",
            **_steps(past),
            "y": marked,
            "yaxis": "y2",
            "width": past.step * 1000,
            "marker": {"color": "rgba(0,0,0,0)", "line": {"width": 0}, "pattern": pattern},
            "hovertemplate": "in part or all",
        }
    ]


def _lines(past: Past, parts: Stack, quantity: Quantity) -> list[dict[str, Any]]:
    lines = (("entitled", parts.entitled, "solid"), ("on the devices", parts.total, "dot"))
    return [
        {
            "type": "scatter",
            **_dots(values),
            "name": name,
            **_steps(past),
            "y": _scaled(values, quantity.scale, quantity.digits),
            "line": {"shape": "hvh", "width": 2, "dash": dash},
            "connectgaps": False,
            "hovertemplate": f"%{{y:.2f}} {quantity.unit}",
            # The page draws these in its text colour.
            "meta": "text",
        }
        for name, values, dash in lines
        if any_known(values)
    ]


def _figure(past: Past, data: list[dict[str, Any]], quantity: Quantity) -> dict[str, Any]:
    yaxis = {"title": {"text": quantity.unit}, "rangemode": "tozero", "fixedrange": True}
    hatched = {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True}
    stacked = {"yaxis": yaxis, "yaxis2": hatched, "barmode": "stack", "bargap": 0}
    return {"data": data, "layout": _layout(past) | stacked}


def _devices(past: Past, names: Mapping[str, str]) -> DrawnFigure:
    """Return the figure of the GPUs' readings, with a panel for each quantity."""
    gpus = [track for track in past.tracks if track.level == "gpu"]
    gpus.sort(key=lambda gpu: (len(_device_name(gpu, names)), _device_name(gpu, names)))
    shown = figure_style.styles_by_place(_device_name(gpu, names) for gpu in gpus)
    data, layout = [], _layout(past)
    panels = [panel for panel in PANELS if any(any_known(gpu.values[panel.field]) for gpu in gpus)]
    height = (1 + _BETWEEN) / max(1, len(panels))
    for number, panel in enumerate(panels):
        axis = "" if number == 0 else str(number + 1)
        bottom = 1 - (number + 1) * height + _BETWEEN
        layout[f"yaxis{axis}"] = {
            "title": {"text": panel.unit},
            "domain": [max(0.0, round(bottom, 4)), round(bottom + height - _BETWEEN, 4)],
            "rangemode": "tozero",
            "fixedrange": True,
        }
        for gpu in gpus:
            name = _device_name(gpu, names)
            line = _line(past, panel, name, gpu.values[panel.field])
            style = {"color": shown[name].colour, "width": 1.5, "dash": shown[name].dash}
            data.append(line | {"line": style, "yaxis": f"y{axis}", "showlegend": number == 0})
    layout["xaxis"]["anchor"] = f"y{len(panels)}" if len(panels) > 1 else "y"
    return DrawnFigure(
        "devices",
        f"Devices: {', '.join(panel.title for panel in panels)}" if panels else "Devices",
        figure_style.devices_caption(gpus, panels),
        {"data": data, "layout": layout},
    )


def _line(past: Past, panel: DevicePanel, name: str, values: Values) -> dict[str, Any]:
    line: dict[str, Any] = {
        "type": "scatter",
        "name": text(name),
        "legendgroup": text(name),
        **_steps(past),
        "y": _scaled(values, panel.scale, 1),
        "connectgaps": False,
        "hovertemplate": f"{panel.title} %{{y:.0f}} {panel.unit}",
    }
    return line | _dots(values)


def _dots(values: Values) -> dict[str, Any]:
    """Return the mode of a line; single points between gaps are dots, because a line needs two points."""
    padded = [None, *values, None]
    alone = [left is None and right is None for left, right in zip(padded, padded[2:], strict=False)]
    if not any(lonely and value is not None for lonely, value in zip(alone, values, strict=True)):
        return {"mode": "lines"}
    sizes = [5 if lonely else 0 for lonely in alone]
    return {"mode": "lines+markers", "marker": {"size": sizes, "line": {"width": 0}}}


def _layout(past: Past) -> dict[str, Any]:
    begin, end = figure_style.shown_from(past), past.end
    return {
        "autosize": True,
        "dragmode": False,
        "hovermode": "x unified",
        "hoverlabel": {"namelength": -1},
        "legend": {
            "orientation": "h",
            "traceorder": "normal",
            "yref": "container",
            "y": 0,
            "yanchor": "bottom",
        },
        "margin": {"l": 52, "r": 12, "t": 8, "b": 32},
        "showlegend": True,
        "xaxis": {
            "type": "date",
            "range": [begin * 1000, end * 1000],
            "nticks": _MOST_TICKS,
            "tickformat": "%H:%M" if end - begin <= _DAY else "%d %b %H:%M",
            "hoverformat": "%d %b %H:%M:%S",
            "fixedrange": True,
        },
    }


def _steps(past: Past) -> dict[str, Any]:
    """Return the time axis of values, each in the middle of its step."""
    return {"x0": (past.start + past.step / 2) * 1000, "dx": past.step * 1000}


def _scaled(values: Values, scale: float, digits: int) -> list[float | None]:
    return [None if value is None else round(value / scale, digits) for value in values]


def text(name: str) -> str:
    """Return a name that Plotly, which interprets tags and entities, shows unchanged."""
    return html.escape(printable(name), quote=False)
