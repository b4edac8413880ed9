"""What GPUs have reported by themselves, for people: what it means, what to do first, whom it hit."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from exporter.formats.wording import duration, plural
from exporter.model import ContainerRef, EventRow, GpuRow
from exporter.model.xids import explain
from exporter.web.pages.views.scene import Scene

# An event stays on the page of the node for so long, on that of its GPU as long as it is kept.
_RECENT_SECONDS = 3600.0
_SHOWN = 50
_NAMED = 3
_HARMLESS = frozenset({"notice", "application"})
_MEANINGS = {
    "single_bit_ecc": "A memory error was corrected.",
    "double_bit_ecc": "A memory error could not be corrected.",
    "mig_config": "The GPU was cut anew.",
    "ecc_storm": "Memory errors are corrected again and again.",
    "dram_retirement": "A part of the memory was taken out of use.",
    "dram_retirement_failure": "A part of the memory could not be taken out of use.",
    "poison": "Data with an error was contained.",
    "fatal_poison": "Data with an error could not be contained.",
    "gpu_unavailable": "The GPU is not available any more.",
    "recovery_action": "The driver asks for another recovery action than before.",
}
# Of the events without a code, those that nobody has to do anything about.
_ORDINARY = frozenset({"single_bit_ecc", "mig_config", "poison", "other"})


@dataclass(frozen=True, slots=True, kw_only=True)
class EventView:
    """An event in the list; ``holders`` are those of the moment. ``look`` is ``bad`` or ``note``."""

    at: str
    ago: str
    look: str
    name: str
    device: str
    meaning: str
    action: str
    holders: tuple[ContainerRef, ...]


def event_views(scene: Scene, uuid: str) -> list[EventView]:
    """Give the newest events of a GPU, the newest first."""
    rows = [row for row in scene.snapshot.events if row.event.uuid == uuid]
    return [_view(scene, row) for row in rows[: -_SHOWN - 1 : -1]]


def hits_of(scene: Scene, ref: ContainerRef) -> list[tuple[EventRow, EventView]]:
    """Give the newest events of devices that a container held at the time, the newest first."""
    rows = [row for row in scene.snapshot.events if ref in row.holders]
    return [(row, _view(scene, row)) for row in rows[: -_SHOWN - 1 : -1]]


class Fault(NamedTuple):
    """A fault of the last hour: ``name`` says what and where, ``text`` what it means and whom it hit."""

    gpu: GpuRow
    look: str
    name: str
    ago: str
    text: str


def recent_faults(scene: Scene) -> Iterator[Fault]:
    """Give each sort of fault on each device once, as of its newest, the newest first."""
    told = set()
    for row in reversed(scene.snapshot.events):
        event = row.event
        kind = (event.uuid, event.mig_uuid, event.kind, event.xid)
        view = _view(scene, row)
        gpu = scene.gpus.get(event.uuid)
        if gpu is None or kind in told or scene.now - event.at > _RECENT_SECONDS or not _matters(row):
            continue
        told.add(kind)
        where = f"GPU {gpu.identity.index}{f' ({view.device})' if view.device else ''}"
        text = " ".join(filter(None, (view.meaning, view.action, _hit(row))))
        yield Fault(gpu, view.look, f"{view.name} on {where}", view.ago, text)


def _matters(row: EventRow) -> bool:
    """Whether somebody should look: also a tenant's own fault matters to those who share the GPU with it."""
    event = row.event
    if event.xid is None:
        return event.kind not in _ORDINARY
    return explain(event.xid).kind != "notice"


def _hit(row: EventRow) -> str:
    pods = list(dict.fromkeys(f"{ref.namespace}/{ref.pod}" for ref in row.holders))
    if not pods:
        return "No pod is known to have held it then."
    if len(pods) == 1:
        return f"It was held by {pods[0]}."
    if len(pods) > _NAMED + 1:
        pods[_NAMED:] = [plural(len(pods) - _NAMED, "other")]
    *first, last = pods
    return f"It was held by {', '.join(first)} and {last}, which may all have been hit."


def _view(scene: Scene, row: EventRow) -> EventView:
    event = row.event
    known = explain(event.xid) if event.xid is not None else None
    harmless = known.kind in _HARMLESS if known is not None else event.kind in _ORDINARY
    return EventView(
        at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(event.at)),
        ago=duration(scene.now - event.at),
        look="note" if harmless else "bad",
        name=f"XID {event.xid}" if known is not None else event.kind.replace("_", " "),
        device=_device(scene, row),
        meaning=known.meaning if known is not None else _MEANINGS.get(event.kind, ""),
        action=known.action if known is not None else "",
        holders=row.holders,
    )


def _device(scene: Scene, row: EventRow) -> str:
    """Name the MIG device that an event came from, "" for the whole GPU."""
    mig = next((mig for mig in scene.snapshot.migs if mig.device.mig_uuid == row.event.mig_uuid), None)
    return (mig.reading.profile if mig is not None else None) or row.event.mig_uuid
