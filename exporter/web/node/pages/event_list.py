"""Events reported by GPUs: their meaning, the first action, and the containers hit."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from exporter.model import ContainerRef, EventRow, GpuRow
from exporter.model.xids import explain
from exporter.web.node.pages.scene import Scene, name_of
from exporter.wording import duration, plural

# Seconds that an event stays on the node page; the page of its GPU shows all that are kept.
_RECENT_SECONDS = 3600.0
_SHOWN = 50
_NAMED = 3
_HARMLESS = frozenset({"notice", "application"})
_MEANINGS = {
    "single_bit_ecc": "A memory error was corrected.",
    "double_bit_ecc": "A memory error could not be corrected.",
    "mig_config": "The GPU was repartitioned.",
    "ecc_storm": "Memory errors are corrected repeatedly.",
    "dram_retirement": "Part of the memory was retired.",
    "dram_retirement_failure": "Part of the memory could not be retired.",
    "poison": "Corrupted data was contained.",
    "fatal_poison": "Corrupted data could not be contained.",
    "gpu_unavailable": "The GPU is no longer available.",
    "recovery_action": "The driver's recovery action changed.",
}
# Events without a code that need no action.
_ORDINARY = frozenset({"single_bit_ecc", "mig_config", "poison", "other"})


@dataclass(frozen=True, slots=True, kw_only=True)
class EventView:
    """An event in the list."""

    at: str
    ago: str
    look: str  # ``bad`` or ``note``
    name: str
    gpu: str  # the name of its GPU, its uuid if the driver does not list it
    device: str  # the MIG device, "" for the whole GPU
    meaning: str
    action: str
    holders: tuple[ContainerRef, ...]  # at the time of the event


def event_views(scene: Scene, uuid: str) -> list[EventView]:
    """Return the newest events of a GPU, newest first."""
    rows = [row for row in scene.snapshot.events if row.event.uuid == uuid]
    return [_view(scene, row) for row in reversed(rows[-_SHOWN:])]


def hits_of(scene: Scene, ref: ContainerRef) -> list[EventView]:
    """Return the newest events of devices that a container held at the time, newest first."""
    rows = [row for row in scene.snapshot.events if ref in row.holders]
    return [_view(scene, row) for row in reversed(rows[-_SHOWN:])]


class Fault(NamedTuple):
    """A fault of the last hour."""

    gpu: GpuRow
    look: str
    name: str  # event and GPU
    ago: str
    text: str  # its meaning, what to do, and the pods hit


def recent_faults(scene: Scene) -> Iterator[Fault]:
    """Yield the newest fault of each kind on each device, newest first."""
    listed = set()
    for row in reversed(scene.snapshot.events):
        event = row.event
        kind = (event.uuid, event.mig_uuid, event.kind, event.xid)
        view = _view(scene, row)
        gpu = scene.gpus.get(event.uuid)
        # A tenant's own fault needs attention too: it also affects pods that share the GPU.
        ordinary = event.kind in _ORDINARY if event.xid is None else explain(event.xid).kind == "notice"
        if gpu is None or kind in listed or scene.now - event.at > _RECENT_SECONDS or ordinary:
            continue
        listed.add(kind)
        where = f"GPU {gpu.identity.index}{f' ({view.device})' if view.device else ''}"
        text = " ".join(filter(None, (view.meaning, view.action, _hit(row))))
        yield Fault(gpu, view.look, f"{view.name} on {where}", view.ago, text)


def _hit(row: EventRow) -> str:
    pods = list(dict.fromkeys(f"{ref.namespace}/{ref.pod}" for ref in row.holders))
    if not pods:
        return "No known holder at the time."
    if len(pods) == 1:
        return f"Held by {pods[0]} at the time."
    if len(pods) > _NAMED + 1:
        pods[_NAMED:] = [plural(len(pods) - _NAMED, "other")]
    *first, last = pods
    return f"Held by {', '.join(first)} and {last} at the time; all may be affected."


def _view(scene: Scene, row: EventRow) -> EventView:
    event, gpu = row.event, scene.gpus.get(row.event.uuid)
    known = explain(event.xid) if event.xid is not None else None
    mig = next((mig for mig in scene.snapshot.migs if mig.device.mig_uuid == event.mig_uuid), None)
    harmless = known.kind in _HARMLESS if known is not None else event.kind in _ORDINARY
    return EventView(
        at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(event.at)),
        ago=duration(scene.now - event.at),
        look="note" if harmless else "bad",
        name=f"XID {event.xid}" if known is not None else event.kind.replace("_", " "),
        gpu=event.uuid if gpu is None else name_of(gpu),
        device=(mig.reading.profile if mig is not None else None) or event.mig_uuid,
        meaning=known.meaning if known is not None else _MEANINGS.get(event.kind, ""),
        action=known.action if known is not None else "",
        holders=row.holders,
    )
