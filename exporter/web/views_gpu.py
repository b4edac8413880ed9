"""The page of one GPU: its slices and holders, what has befallen it, its links, and all its readings."""

import time
from dataclasses import dataclass
from typing import Any

from exporter.formats_words import duration
from exporter.model import ContainerRef, EventRow, GpuRow
from exporter.web.views_gpus import gpu_view, part_name
from exporter.web.views_holders import holder_views
from exporter.web.views_readings import ReadingGroup, gpu_readings, mig_readings
from exporter.web.views_scene import Scene, answers
from exporter.web.views_topology import topology_rows
from exporter.xids import explain

_SHOWN_EVENTS = 50
_WATCHED = "None since this exporter was started."
_UNWATCHED = "The driver does not report the events of this GPU: the node's kernel log has its XIDs."
_HARMLESS = frozenset({"notice", "application"})
EVENT_MEANINGS = {
    "single_bit_ecc": "A memory error was corrected.",
    "double_bit_ecc": "A memory error could not be corrected.",
    "mig_config": "The GPU was cut anew.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EventView:
    """An event in the list; ``holders`` are those of the moment."""

    at: str
    ago: str
    look: str
    name: str
    device: str
    meaning: str
    action: str
    holders: tuple[ContainerRef, ...]


@dataclass(frozen=True, slots=True)
class MigView:
    """The readings of one MIG device."""

    name: str
    uuid: str
    groups: list[ReadingGroup]


def gpu_context(scene: Scene, gpu: GpuRow) -> dict[str, Any]:
    """Give what the template of the page is filled with."""
    uuid = gpu.identity.uuid
    groups = gpu_readings(gpu)
    return {
        "gpu": gpu_view(scene, gpu),
        "holders": [view for view, row in _holders(scene) if row == uuid],
        "events": [_event(scene, row) for row in _newest(scene, uuid)],
        "no_events": _WATCHED if gpu.watched else _UNWATCHED,
        "topology": topology_rows(scene),
        "groups": groups,
        "missing": [group for group in groups if group.why and answers(gpu)],
        "migs": [
            MigView(
                f"{part_name(mig.device)} {mig.reading.gi}/{mig.reading.ci} {mig.reading.profile or ''}",
                mig.device.mig_uuid,
                mig_readings(mig),
            )
            for mig in scene.snapshot.migs
            if mig.device.uuid == uuid
        ],
    }


def _holders(scene: Scene) -> list[tuple[Any, str]]:
    rows = scene.snapshot.containers
    return [(view, row.device.uuid) for view, row in zip(holder_views(scene), rows, strict=True)]


def _newest(scene: Scene, uuid: str) -> list[EventRow]:
    """Give the newest events of a GPU, the newest first."""
    rows = [row for row in scene.snapshot.events if row.event.uuid == uuid]
    return rows[: -_SHOWN_EVENTS - 1 : -1]


def _event(scene: Scene, row: EventRow) -> EventView:
    event = row.event
    known = explain(event.xid) if event.xid is not None else None
    word = event.kind.replace("_", " ")
    return EventView(
        at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(event.at)),
        ago=duration(scene.now - event.at),
        look="bad" if known is None or known.kind not in _HARMLESS else "note",
        name=f"XID {event.xid}" if known is not None else word,
        device=_device(scene, row),
        meaning=known.meaning if known is not None else EVENT_MEANINGS.get(event.kind, ""),
        action=known.action if known is not None else "",
        holders=row.holders,
    )


def _device(scene: Scene, row: EventRow) -> str:
    """Name the MIG device that an event came from, "" for the whole GPU."""
    mig = next((mig for mig in scene.snapshot.migs if mig.device.mig_uuid == row.event.mig_uuid), None)
    return (mig.reading.profile if mig is not None else None) or row.event.mig_uuid
