"""The pages as drawings, made from a snapshot by pure functions; readable without scripts."""

from collections.abc import Callable, Mapping

from exporter.doctor.report import Report
from exporter.model import ContainerRef
from exporter.web.html import Drawing, piece
from exporter.web.pages.holders_table.holders import holder_table
from exporter.web.pages.picture.gpu_rows import gpu_view
from exporter.web.pages.scene import Scene, anchor_of
from exporter.web.pages.views.doctor_page import doctor_view
from exporter.web.pages.views.gpu_page import gpu_context
from exporter.web.pages.views.head import head, timeline_view
from exporter.web.pages.views.holder_page import holder_page
from exporter.web.pages.views.notices import missing_gpus, missing_holders, notices
from exporter.web.pages.views.totals import cards


def node_drawing(scene: Scene) -> Drawing:
    """Return the page of the node."""
    gpus = {
        f"gpu-{anchor_of(gpu)}": piece("pieces/gpu.html", "gpu_row", gpu_view(scene, gpu), scene.root)
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
            "cards": piece("pieces/node.html", "cards_of", cards(scene) if gpus else ()),
            "health": piece("pieces/node.html", "health", notices(scene)),
            "gpus-none": piece("pieces/node.html", "panel", "gpus-none", missing_gpus(scene)),
            "holders-none": piece("pieces/node.html", "panel", "holders-none", missing_holders(scene)),
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
    parts = gpu_context(scene.in_full(), gpu)
    table = holder_table(scene, [row for row in scene.snapshot.containers if row.device.uuid == uuid])
    shown = head(scene)
    return _drawing(
        scene,
        "gpu.html",
        f"{parts['gpu'].name} · {shown.node}",
        {
            "name": piece("pieces/head.html", "name_of_gpu", shown, parts["gpu"], scene.root),
            "status": piece("pieces/head.html", "status_of", shown),
            "health": piece("pieces/node.html", "health", parts["health"]),
            "gpu": piece("pieces/gpu.html", "gpu_row", parts["gpu"], scene.root, "gpu", False),
            "holders-none": piece("pieces/node.html", "panel", "holders-none", None),
            "timeline": _timeline(scene, "gpu", uuid),
            "processes": piece("pieces/processes.html", "processes_of", parts["processes"], scene.root),
            "events": piece(
                "pieces/readings.html", "events_of", parts["events"], parts["no_events"], scene.root
            ),
            "topology": piece("pieces/readings.html", "topology_of", parts["gpu"], parts["topology"]),
            "readings": piece(
                "pieces/readings.html", "readings_of", parts["groups"], parts["parts"], parts["missing"]
            ),
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


def doctor_drawing(scene: Scene, report: Report) -> Drawing:
    """Return the page of the doctor: what is missing or degraded, and how to fix it."""
    shown, view = head(scene), doctor_view(report)
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


DRAWN: Mapping[str, Callable[[Scene, tuple[str, ...]], Drawing | None]] = {
    "node": lambda scene, _names: node_drawing(scene),
    "gpu": lambda scene, names: gpu_drawing(scene, *names),
    "holder": lambda scene, names: holder_drawing(scene, *names),
}
"""The kinds of pages that need only a snapshot, each drawn for its subject (``Place.names``)."""


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
