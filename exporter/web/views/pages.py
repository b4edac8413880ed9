"""The pages as drawings, made of a snapshot by pure functions: no script is needed to read them."""

from collections.abc import Iterable, Mapping
from typing import Any

from exporter.model import GpuRow
from exporter.web.drawing import Drawing
from exporter.web.html import piece
from exporter.web.views.gpu import gpu_context
from exporter.web.views.gpus import gpu_view
from exporter.web.views.head import head
from exporter.web.views.holders import HolderView, holder_views
from exporter.web.views.notices import missing_gpus, missing_holders, notices
from exporter.web.views.scene import Scene, anchor_of
from exporter.web.views.totals import cards


def node_drawing(scene: Scene) -> Drawing:
    """Draw the node."""
    gpus = {f"gpu-{anchor_of(gpu)}": _gpu(scene, gpu) for gpu in scene.snapshot.gpus}
    rows = _rows(scene, holder_views(scene))
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
            **gpus,
            **rows,
        },
        {"gpus": tuple(gpus), "holder-rows": tuple(rows)},
    )


def gpu_drawing(scene: Scene, uuid: str) -> Drawing | None:
    """Draw one GPU with all its readings; None where there is no such GPU."""
    gpu = scene.gpus.get(uuid)
    if gpu is None:
        return None
    parts = gpu_context(scene, gpu)
    rows = _rows(scene, parts["holders"])
    shown = head(scene)
    return _drawing(
        scene,
        "gpu.html",
        f"{parts['gpu'].name} · {shown.node}",
        {
            "name": piece("pieces/head.html", "name_of_gpu", shown, parts["gpu"], scene.root),
            "status": piece("pieces/head.html", "status_of", shown),
            "gpu": piece("pieces/gpu.html", "gpu_row", parts["gpu"], scene.root, "gpu", False),
            "holders-none": piece("pieces/node.html", "panel", "holders-none", None),
            "events": piece("pieces/readings.html", "events_of", parts["events"], parts["no_events"]),
            "topology": piece("pieces/readings.html", "topology_of", parts["gpu"], parts["topology"]),
            "readings": piece(
                "pieces/readings.html", "readings_of", parts["groups"], parts["parts"], parts["missing"]
            ),
            **rows,
        },
        {"holder-rows": tuple(rows)},
    )


def _gpu(scene: Scene, gpu: GpuRow) -> str:
    return piece("pieces/gpu.html", "gpu_row", gpu_view(scene, gpu), scene.root)


def _rows(scene: Scene, views: Iterable[HolderView]) -> dict[str, str]:
    return {view.id: piece("pieces/holders.html", "holder_row", view, scene.root) for view in views}


def _drawing(
    scene: Scene,
    layout: str,
    title: str,
    pieces: Mapping[str, str],
    lists: Mapping[str, tuple[str, ...]],
    **facts: Any,
) -> Drawing:
    demo = scene.snapshot.demo
    title = f"{title} (demo)" if demo else title
    return Drawing(layout=layout, title=title, pieces=pieces, lists=lists, facts={"demo": demo, **facts})
