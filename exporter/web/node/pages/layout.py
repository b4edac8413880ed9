"""The pages as drawings, with the head and the timelines that they share; readable without scripts.

They are made from a snapshot by pure functions.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from mmap import ACCESS_READ, mmap
from typing import NamedTuple
from urllib.parse import quote, urlencode

from exporter.model import CollectorHealth, ContainerRef, Snapshot
from exporter.web.kit.html import Drawing, piece
from exporter.web.kit.http.assets import library
from exporter.web.node.pages.doctor_page import doctor_view
from exporter.web.node.pages.event_list import event_views
from exporter.web.node.pages.gpu_page import gpu_readings, no_events, part_views, topology_rows
from exporter.web.node.pages.holder_page import holder_page
from exporter.web.node.pages.holder_table import holder_table
from exporter.web.node.pages.notices import condition_notices, missing_gpus, missing_holders, notices
from exporter.web.node.pages.picture.gpu_rows import gpu_view
from exporter.web.node.pages.process_table import processes_of_gpu
from exporter.web.node.pages.scene import Scene, anchor_of, answers
from exporter.web.node.pages.totals import cards
from exporter.wording import TIMES, duration, mode_word, plural

# Data is old after this many seconds (after which the exporter, by default, stops showing it) and intervals.
_OLD_SECONDS, _OLD_INTERVALS = 60.0, 3
# Short names of the collectors.
_SOURCES = {
    "nvml": "driver",
    "podresources": "kubelet",
    "processes": "processes",
    "identity": "pod names",
}
DEFAULT = "1h"
_STYLED = re.compile(rb'getElementById\("([0-9a-f]{64})"\)')
_FILTERS = {"node": (), "gpu": ("uuid",), "holder": ("namespace", "pod", "container")}


def node_drawing(scene: Scene) -> Drawing:
    gpus = {
        f"gpu-{anchor_of(gpu)}": piece("pieces/gpu_row.html", "gpu_row", gpu_view(scene, gpu), scene.root)
        for gpu in scene.snapshot.gpus
    }
    table = holder_table(scene, scene.snapshot.containers)
    shown = head(scene)
    return _drawing(
        scene,
        "node.html",
        f"{shown.node} · GPU slices",
        {
            "name": piece("pieces/head.html", "name_of_node", shown),
            "status": piece("pieces/head.html", "status_of", shown),
            "cards": piece("pieces/cards.html", "cards_of", cards(scene) if gpus else ()),
            "health": piece("pieces/cards.html", "health", notices(scene)),
            "gpus-none": piece("pieces/cards.html", "panel", "gpus-none", missing_gpus(scene)),
            "holders-none": piece("pieces/cards.html", "panel", "holders-none", missing_holders(scene)),
            "timeline": _timeline(scene, "node"),
            **gpus,
            **table.pieces,
        },
        {"gpus": tuple(gpus), "holder-rows": table.rows},
    )


def gpu_drawing(scene: Scene, uuid: str) -> Drawing | None:
    """Return the page of one GPU with all its readings; None if there is no such GPU."""
    gpu = scene.gpus.get(uuid)
    if gpu is None:
        return None
    view, groups = gpu_view(scene.in_full(), gpu), gpu_readings(gpu)
    missing = [group for group in groups if group.why and answers(gpu)]
    parts, topology = list(part_views(scene, gpu)), () if gpu.unread else topology_rows(scene)
    table = holder_table(scene, [row for row in scene.snapshot.containers if row.device.uuid == uuid])
    shown = head(scene)
    return _drawing(
        scene,
        "gpu.html",
        f"{view.name} · {shown.node}",
        {
            "name": piece("pieces/head.html", "name_of_gpu", shown, view, scene.root),
            "status": piece("pieces/head.html", "status_of", shown),
            "health": piece("pieces/cards.html", "health", list(condition_notices(scene, gpu))),
            "gpu": piece("pieces/gpu_row.html", "gpu_row", view, scene.root, "gpu", False),
            "holders-none": piece("pieces/cards.html", "panel", "holders-none", None),
            "timeline": _timeline(scene, "gpu", uuid),
            "processes": piece(
                "pieces/processes.html", "processes_of", processes_of_gpu(scene, gpu), scene.root
            ),
            "events": piece(
                "pieces/readings.html", "events_of", event_views(scene, uuid), no_events(gpu), scene.root
            ),
            "topology": piece("pieces/readings.html", "topology_of", view, topology),
            "readings": piece("pieces/readings.html", "readings_of", groups, parts, missing),
            **table.pieces,
        },
        {"holder-rows": table.rows},
    )


def holder_drawing(scene: Scene, namespace: str, pod: str, container: str) -> Drawing | None:
    """Return the page of one holder; None if no such container holds or uses a device."""
    page = holder_page(scene, ContainerRef(namespace, pod, container))
    if page is None:
        return None
    devices = {
        device.id: piece("pieces/holder.html", "device_of", device, scene.root) for device in page.devices
    }
    shown = head(scene)
    return _drawing(
        scene,
        "holder.html",
        f"{namespace}/{pod} · {shown.node}",
        {
            "name": piece("pieces/holder.html", "name_of_holder", shown, page, scene.root),
            "status": piece("pieces/head.html", "status_of", shown),
            "answers": piece("pieces/holder.html", "answers_of", page.answers),
            "timeline": _timeline(scene, "holder", namespace, pod, container),
            "processes": piece("pieces/processes.html", "processes_of", page.processes, scene.root, True),
            "events": piece("pieces/holder.html", "hits_of", page.hits),
            **devices,
        },
        {"devices": tuple(devices)},
    )


def doctor_drawing(scene: Scene) -> Drawing:
    """Return the page of the doctor: what is missing or degraded, and how to fix it."""
    shown, view = head(scene), doctor_view(scene.report())
    return _drawing(
        scene,
        "doctor.html",
        f"Doctor · {shown.node}",
        {
            "name": piece("pieces/doctor.html", "name_of_doctor", shown, scene.root),
            "status": piece("pieces/head.html", "status_of", shown),
            "summary": piece("pieces/doctor.html", "summary_of", view.summary, scene.root),
            "fix": piece("pieces/doctor.html", "ailments", view.ailing),
            "well": piece("pieces/doctor.html", "well", view.well),
            "lacking-name": piece("pieces/doctor.html", "lacking_name", view.lacking),
            "lacking-list": piece("pieces/doctor.html", "lacking_list", view.lacking),
        },
        {},
    )


# The kinds of pages, each drawn from a scene and its ``Place.names``; None if there is no such subject.
DRAWN: Mapping[str, Callable[..., Drawing | None]] = {
    "node": node_drawing,
    "gpu": gpu_drawing,
    "holder": holder_drawing,
    "doctor": doctor_drawing,
}


def _timeline(scene: Scene, kind: str, *names: str) -> str:
    return piece("pieces/timeline.html", "timeline_of", timeline_view(scene, kind, *names), scene.root)


def _drawing(
    scene: Scene,
    layout: str,
    title: str,
    pieces: Mapping[str, str],
    lists: Mapping[str, tuple[str, ...]],
) -> Drawing:
    demo = scene.snapshot.demo
    title = f"{title} (demo)" if demo else title
    return Drawing(layout=layout, title=title, pieces=pieces, lists=lists, facts={"demo": demo})


class Source(NamedTuple):
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
    old_after = max(_OLD_SECONDS, _OLD_INTERVALS * scene.interval)
    blind = bool(snapshot.node.blind) or (bool(snapshot.gpus) and not snapshot.node.process_view)
    failing = scene.failing.keys() - ({"nvml"} if scene.released else set())
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
        degraded=bool(snapshot.sequence and (failing or blind)),
    )


def _source(scene: Scene, health: CollectorHealth) -> Source:
    look, word = ("good", "") if health.success else ("bad", "failing")
    if health.name == "nvml" and scene.released:
        look, word = "note", "released"
    title = f"{health.name}: {health.message or ('answers' if health.success else 'fails')}"
    return Source(_SOURCES.get(health.name, health.name), look, word, title)


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


def timeline_view(scene: Scene, kind: str, *names: str) -> TimelineView:
    """Return the timelines of a page, by its kind and subject (see ``Place``)."""
    usual = DEFAULT if DEFAULT in scene.spans or not scene.spans else scene.spans[-1]
    span = scene.query.span or usual
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
