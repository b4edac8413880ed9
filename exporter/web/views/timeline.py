"""The section of timelines: which span is shown, which others there are, and where its numbers are."""

import re
from dataclasses import replace
from functools import cache
from mmap import ACCESS_READ, mmap
from typing import NamedTuple
from urllib.parse import quote, urlencode

from exporter.history.spans import span_seconds
from exporter.web.serving.assets import library
from exporter.web.views.scene import Scene

DEFAULT = "1h"
_STYLED = re.compile(rb'getElementById\("([0-9a-f]{64})"\)')
_FILTERS = {"node": (), "gpu": ("uuid",), "holder": ("namespace", "pod", "container")}


class RangeLink(NamedTuple):
    """A link to the same page with another span."""

    name: str
    href: str
    current: bool


class TimelineView(NamedTuple):
    """Addresses relative to the page: ``figures`` for the script, ``history`` for those without.

    ``styled`` are the ids of elements that Plotly must find, or it adds styles, which the policy forbids.
    """

    figures: str
    history: str
    ranges: tuple[RangeLink, ...]
    styled: tuple[str, ...]


def timeline_view(scene: Scene, kind: str = "node", *names: str) -> TimelineView:
    """Tell of the timelines of a page, by its kind and what it is of (see ``Place``)."""
    asked = scene.query.span
    span = asked if span_seconds(asked) is not None else _default(scene.spans)
    path = "/".join(quote(name, safe="") for name in (kind, *names))
    filters = [(key, name) for key, name in zip(_FILTERS[kind], names, strict=True) if name]
    return TimelineView(
        styled=styled(),
        figures=f"{scene.root}figures/{path}?{urlencode({'range': span})}",
        history=f"{scene.root}api/v1/history?{urlencode([('range', span), *filters])}",
        ranges=tuple(_link(scene, each, each == span) for each in scene.spans),
    )


@cache
def styled() -> tuple[str, ...]:
    """Look up in Plotly's JavaScript by which ids it knows its styles, which are those of maps."""
    found = library()
    if found is None:
        return ()
    with found.path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as text:
        return tuple(sorted({match[1].decode() for match in _STYLED.finditer(text)}))


def _link(scene: Scene, span: str, current: bool) -> RangeLink:
    address = replace(scene.query, span=span).url
    return RangeLink(f"{span[:-1]} {span[-1]}", f"{address}#timeline", current)


def _default(spans: tuple[str, ...]) -> str:
    return DEFAULT if DEFAULT in spans or not spans else spans[-1]
