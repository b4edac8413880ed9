"""The head of the page, and the section of timelines."""

import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from mmap import ACCESS_READ, mmap
from typing import NamedTuple
from urllib.parse import quote, urlencode

from exporter.formats.wording import TIMES, duration, mode_word, plural
from exporter.history.ring import span_seconds
from exporter.model import CollectorHealth, Snapshot
from exporter.web.http.assets import library
from exporter.web.pages.scene import Scene, answers

# Data is old after this many seconds (after which the exporter, by default, stops showing it) and intervals.
OLD_SECONDS = 60.0
OLD_INTERVALS = 3
SOURCES = {
    "nvml": "driver",
    "podresources": "kubelet",
    "processes": "processes",
    "identity": "pod names",
}
"""Short names of the collectors."""


@dataclass(frozen=True, slots=True)
class Source:
    """The state of one collector."""

    name: str
    look: str  # good, bad or note
    word: str  # "" if good
    title: str  # its name in the metrics and its error


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The first lines of the page."""

    node: str
    modes: tuple[str, ...]  # ways of sharing
    facts: tuple[str, ...]
    polled: str
    polled_at: str
    old: bool  # whether the last poll is older than ``old_after`` seconds
    old_after: float
    sources: tuple[Source, ...]
    doctor: str  # address of the doctor page
    degraded: bool  # whether a source fails or data is missing


def head(scene: Scene) -> Head:
    """Return the head of the page: the node and its sources."""
    snapshot = scene.snapshot
    age = max(scene.now - snapshot.timestamp, 0.0)
    old_after = max(OLD_SECONDS, OLD_INTERVALS * scene.interval)
    return Head(
        node=snapshot.node.name,
        modes=tuple(
            dict.fromkeys(mode_word(gpu.sharing) for gpu in snapshot.gpus if answers(gpu) or gpu.unread)
        ),
        facts=tuple(_facts(snapshot)),
        polled=f"polled {duration(age)} ago" if snapshot.sequence else "not polled yet",
        polled_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(snapshot.timestamp)),
        old=age > old_after,
        old_after=old_after,
        sources=tuple(_source(scene, health) for health in snapshot.collectors),
        doctor=f"{scene.root}doctor",
        degraded=_degraded(scene),
    )


def _degraded(scene: Scene) -> bool:
    """Return whether a source fails or data is missing."""
    node = scene.snapshot.node
    blind = bool(scene.snapshot.gpus) and not node.process_view
    failing = scene.failing.keys() - ({"nvml"} if scene.released else set())
    return bool(scene.snapshot.sequence and (failing or blind or node.blind))


def _source(scene: Scene, health: CollectorHealth) -> Source:
    look, word = ("good", "") if health.success else ("bad", "failing")
    if health.name == "nvml" and scene.released:
        look, word = "note", "released"
    title = f"{health.name}: {health.message or ('answers' if health.success else 'fails')}"
    return Source(SOURCES.get(health.name, health.name), look, word, title)


def _facts(snapshot: Snapshot) -> Iterator[str]:
    models = Counter(gpu.identity.model.removeprefix("NVIDIA ") for gpu in snapshot.gpus)
    if models:
        named = (f"{count} {TIMES} {model or 'GPU of unknown model'}" for model, count in models.items())
        yield ", ".join(named)
    elif snapshot.node.gpu_count is not None:
        yield plural(snapshot.node.gpu_count, "GPU")
    driver = snapshot.node.driver
    if driver is not None and driver.driver_version:
        yield f"driver {driver.driver_version}"
    if driver is not None and driver.cuda_version:
        yield f"CUDA {driver.cuda_version}"


DEFAULT = "1h"
_STYLED = re.compile(rb'getElementById\("([0-9a-f]{64})"\)')
_FILTERS = {"node": (), "gpu": ("uuid",), "holder": ("namespace", "pod", "container")}


class RangeLink(NamedTuple):
    """A link to the same page with another span."""

    name: str
    href: str
    current: bool


class TimelineView(NamedTuple):
    """The timelines; addresses are relative to the page."""

    figures: str  # for the script
    history: str  # for browsers without scripts
    ranges: tuple[RangeLink, ...]
    styled: tuple[str, ...]  # ids that Plotly must find, or it adds styles, which the policy forbids


def timeline_view(scene: Scene, kind: str = "node", *names: str) -> TimelineView:
    """Return the timelines of a page, by its kind and subject (see ``Place``)."""
    span = scene.query.span
    if span_seconds(span) is None:
        span = DEFAULT if DEFAULT in scene.spans or not scene.spans else scene.spans[-1]
    path = "/".join(quote(name, safe="") for name in (kind, *names))
    filters = [(key, name) for key, name in zip(_FILTERS[kind], names, strict=True) if name]
    return TimelineView(
        styled=styled(),
        figures=f"{scene.root}figures/{path}?{urlencode({'range': span})}",
        history=f"{scene.root}api/v1/history?{urlencode([('range', span), *filters])}",
        ranges=tuple(
            RangeLink(
                f"{other[:-1]} {other[-1]}",
                f"{replace(scene.query, span=other).url}#timeline",
                other == span,
            )
            for other in scene.spans
        ),
    )


@cache
def styled() -> tuple[str, ...]:
    """Return the ids by which Plotly's JavaScript finds its styles (of maps)."""
    plotly = library()
    if plotly is None:
        return ()
    with plotly.path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as text:
        return tuple(sorted({match[1].decode() for match in _STYLED.finditer(text)}))
