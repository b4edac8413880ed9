"""``snapshot``: print the result of one poll."""

import json
from collections.abc import Callable, Mapping

from exporter.commands.node_and_output import Node
from exporter.commands.one_poll import poll_once
from exporter.config.settings import Settings
from exporter.exposition.page import Exposition, choose_format
from exporter.formats.json_csv import snapshot_csv, snapshot_json
from exporter.formats.text import snapshot_text
from exporter.metrics.selection import Selection
from exporter.model import Snapshot


def _prometheus(snapshot: Snapshot, settings: Settings) -> str:
    exposition = Exposition(Selection.of(settings), hostname_label=settings.dcgm_hostname_label)
    return exposition.page(snapshot).body(choose_format("")).decode()


FORMATS: Mapping[str, Callable[[Snapshot, Settings], str]] = {
    "text": lambda snapshot, settings: snapshot_text(snapshot, idle_after=settings.idle_after),
    "json": lambda snapshot, settings: (
        json.dumps(snapshot_json(snapshot, idle_after=settings.idle_after), indent=2) + "\n"
    ),
    "csv": lambda snapshot, settings: snapshot_csv(snapshot, idle_after=settings.idle_after),
    "prometheus": _prometheus,
}


async def snapshot(node: Node, form: str) -> str:
    """Poll once and return the text to print, in one of FORMATS."""
    result, _ = await poll_once(node)
    return FORMATS[form](result, node.settings)
