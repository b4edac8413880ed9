"""The pages as drawings, with the head and the timelines that they share; readable without scripts.

They are made from a snapshot by pure functions.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from mmap import ACCESS_READ, mmap
from typing import NamedTuple
from urllib.parse import quote, urlencode

from exporter.model import ContainerRef
from exporter.web.kit.html import Drawing, piece
from exporter.web.kit.http.assets import library
from exporter.web.node.pages.doctor_page import doctor_view
from exporter.web.node.pages.ended_page import ended_list, ended_page
from exporter.web.node.pages.event_list import event_views
from exporter.web.node.pages.gpu_page import gpu_readings, no_events, part_views, topology_rows
from exporter.web.node.pages.head import head
from exporter.web.node.pages.holder_page import holder_page
from exporter.web.node.pages.holder_table import holder_table
from exporter.web.node.pages.notices import condition_notices, missing_gpus, missing_holders, notices
from exporter.web.node.pages.picture.gpu_rows import gpu_view
from exporter.web.node.pages.process_table import processes_of_gpu
from exporter.web.node.pages.scene import Scene, anchor_of, answers
from exporter.web.node.pages.totals import cards

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
            "ended": piece("pieces/ended.html", "ended_list", ended_list(scene), scene.root),
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
            "ended": piece("pieces/ended.html", "ended_list", ended_list(scene, uuid), scene.root),
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
    """Return the page of one holder, also of one that ended; None if neither is known."""
    names = namespace, pod, container
    page = holder_page(scene, ContainerRef(*names))
    if page is None:
        return _ended_drawing(scene, names)
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
            "devices-name": piece("pieces/holder.html", "devices_name", "What it holds and uses"),
            "legend": piece("pieces/holder.html", "legend", True),
            "timeline": _timeline(scene, "holder", *names),
            "processes": piece("pieces/processes.html", "processes_of", page.processes, scene.root, True),
            "events": piece("pieces/holder.html", "hits_of", page.hits),
            **devices,
        },
        {"devices": tuple(devices)},
    )


def _ended_drawing(scene: Scene, names: tuple[str, str, str]) -> Drawing | None:
    """Return the same page of a holder that ended: an open page turns into it."""
    page = ended_page(scene, ContainerRef(*names))
    if page is None:
        return None
    devices = {
        device.id: piece("pieces/ended.html", "device_of", device, scene.root) for device in page.devices
    }
    shown = head(scene)
    return _drawing(
        scene,
        "holder.html",
        f"{names[0]}/{names[1]} (ended) · {shown.node}",
        {
            "name": piece("pieces/ended.html", "name_of_ended", shown, page, scene.root),
            "status": piece("pieces/head.html", "status_of", shown),
            "answers": piece("pieces/holder.html", "answers_of", page.answers),
            "devices-name": piece("pieces/holder.html", "devices_name", "What it held and used"),
            "legend": piece("pieces/holder.html", "legend", False),
            "timeline": _timeline(scene, "holder", *names, usual=page.span),
            "processes": piece("pieces/ended.html", "no_processes"),
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


def _timeline(scene: Scene, kind: str, *names: str, usual: str = DEFAULT) -> str:
    view = timeline_view(scene, kind, *names, usual=usual)
    return piece("pieces/timeline.html", "timeline_of", view, scene.root)


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


def timeline_view(scene: Scene, kind: str, *names: str, usual: str = DEFAULT) -> TimelineView:
    """Return the timelines of a page, by its kind and subject (see ``Place``); ``usual`` is their range."""
    usual = usual if usual in scene.spans or not scene.spans else scene.spans[-1]
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
