"""The pages as HTML, made of a snapshot by pure functions: no script, no style but the static files."""

import time
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from exporter import __version__
from exporter.formats_words import printable
from exporter.model import Snapshot
from exporter.web.views_gpu import gpu_context
from exporter.web.views_gpus import gpu_view
from exporter.web.views_head import head
from exporter.web.views_holders import holder_views
from exporter.web.views_notices import missing_gpus, missing_holders, notices
from exporter.web.views_scene import Scene
from exporter.web.views_totals import cards


def node_page(snapshot: Snapshot, *, now: float | None = None, idle_after: float = 600.0) -> str:
    """Draw the node as it is looked at at Unix time ``now`` (default: the clock), as one HTML page.

    A holder is idle after ``idle_after`` seconds without compute.
    """
    scene = Scene(snapshot, time.time() if now is None else now, idle_after)
    return _render(
        "node.html",
        scene,
        "",
        cards=cards(scene) if snapshot.gpus else (),
        notices=notices(scene),
        no_gpus=missing_gpus(scene),
        gpus=[gpu_view(scene, gpu) for gpu in snapshot.gpus],
        no_holders=missing_holders(scene),
        holders=holder_views(scene),
    )


def gpu_page(
    snapshot: Snapshot, uuid: str, *, now: float | None = None, idle_after: float = 600.0
) -> str | None:
    """Draw one GPU with all its readings, as one HTML page; None where there is no such GPU."""
    scene = Scene(snapshot, time.time() if now is None else now, idle_after)
    gpu = scene.gpus.get(uuid)
    return None if gpu is None else _render("gpu_page.html", scene, "../", **gpu_context(scene, gpu))


def _render(template: str, scene: Scene, root: str, **parts: Any) -> str:
    """Fill a template; ``root`` leads from the page to the node's, so that any sub-path will do."""
    demo = scene.snapshot.demo
    return (
        _environment()
        .get_template(template)
        .render(version=__version__, demo=demo, head=head(scene), root=root, **parts)
    )


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("exporter.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )


def _visible(value: Any) -> Any:
    """Show what a name could hide or turn around (control and bidi characters) as escapes."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value
