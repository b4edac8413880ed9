"""A snapshot as JSON and CSV.

Names of fields and columns come from the table of series: ``memory_used_bytes`` of a container is
``gpuslice_container_memory_used_bytes`` there.
"""

import csv
import io
import math
from collections.abc import Iterable, Iterator
from typing import Any

from exporter import metrics
from exporter.formats.labels import label_texts
from exporter.metrics import AnyFamily, Entity, Family, LabelledFamily, Level, Number, field_name
from exporter.metrics.gpu_parts import VGPU
from exporter.model import EventRow, GpuRow, PodRow, ProcessRow, Snapshot
from exporter.model.pod_labels import PodLabels
from exporter.model.states import judge_row
from exporter.model.xids import explain
from exporter.wording import encodable

_LABELS = "pod_labels"
_STATE = ("other_states", "state", "quiet_seconds")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def snapshot_json(snapshot: Snapshot, *, idle_after: float = 600.0) -> dict[str, Any]:
    """Return the snapshot as JSON data: lists of objects by level; unknown values are null.

    Identity (labels and info series) is text; a family with labels of its own is an object keyed by their
    values, outermost first. Events, oldest first, have the containers that they affected. Names of processes
    are those that their owners chose. A container is idle after ``idle_after`` seconds without compute use.
    """
    (node,) = _records("node", metrics.NODE, snapshot)
    gpus = zip(_records("gpu", metrics.GPU, snapshot), snapshot.gpus, strict=True)
    health = zip(_records("collector", metrics.COLLECTOR, snapshot), snapshot.collectors, strict=True)
    return {
        "timestamp": snapshot.timestamp,
        "sequence": snapshot.sequence,
        "demo": snapshot.demo,
        "node": node | {"process_attribution_reason": snapshot.node.process_view_reason},
        "gpus": [record | {"raised": _raised(row)} for record, row in gpus],
        "migs": list(_records("mig", metrics.MIG, snapshot)),
        "vgpus": list(_records("vgpu", VGPU, snapshot)),
        "containers": list(_containers(snapshot, idle_after)),
        "pods": [_pod(row) for row in snapshot.pods],
        "processes": [_process(row) for row in snapshot.processes],
        "processes_left_out": snapshot.processes_left_out,
        "events": [_event(row) for row in snapshot.events],
        "collectors": [record | {"message": row.message} for record, row in health],
    }


def snapshot_csv(snapshot: Snapshot, *, idle_after: float = 600.0) -> str:
    """Return the container rows as CSV, as ``csv_text`` does."""
    records = _containers(snapshot, idle_after)
    return csv_text(
        (*_columns("container", metrics.CONTAINER), _LABELS, *_STATE), (record.values() for record in records)
    )


def _containers(snapshot: Snapshot, idle_after: float) -> Iterator[dict[str, Any]]:
    """Yield containers with their states at the time of the poll, and the labels of their pods."""
    records, labels = _records("container", metrics.CONTAINER, snapshot), PodLabels(snapshot.pods)
    for record, row in zip(records, snapshot.containers, strict=True):
        judged = judge_row(snapshot, row, idle_after)
        record[_LABELS] = dict(labels.of(row)) or None
        yield record | dict(zip(_STATE, (list(judged.also), judged.state, judged.quiet_for), strict=True))


def _raised(row: GpuRow) -> dict[str, Any]:
    """Return the conditions that a GPU has, with their beginning (Unix time) and causes."""
    return {name: {"since": one.since, "causes": list(one.causes)} for name, one in row.raised.items()}


def _pod(row: PodRow) -> dict[str, Any]:
    """Return a pod with its labels under their own names."""
    return {"namespace": row.namespace, "pod": row.name, "pod_uid": row.uid, "labels": dict(row.labels)}


def _process(row: ProcessRow) -> dict[str, Any]:
    """Return a process; a container that cannot be distinguished in its pod is null."""
    holder = row.holder
    return {
        "uuid": row.device.uuid,
        "mig_uuid": row.device.mig_uuid or None,
        "pid": row.pid,
        "command": row.command,
        "kinds": sorted(row.kinds),
        "place": row.place,
        "namespace": holder.namespace if holder else None,
        "pod": holder.pod if holder else None,
        "container": (holder.container or None) if holder else None,
        "memory_used_bytes": row.memory,
        "compute_used_ratio": _finite(row.compute),
    }


def _event(row: EventRow) -> dict[str, Any]:
    event = row.event
    xid = explain(event.xid) if event.xid is not None else None
    return {
        "timestamp": event.at,
        "uuid": event.uuid,
        "mig_uuid": event.mig_uuid or None,
        "kind": event.kind,
        "xid": event.xid,
        "class": xid.kind if xid else None,
        "meaning": xid.meaning if xid else None,
        "action": xid.action if xid else None,
        "holders": [holder._asdict() for holder in row.holders],
    }


def _records(level: Level, families: Iterable[AnyFamily], snapshot: Snapshot) -> Iterator[dict[str, Any]]:
    for entity in metrics.ENTITIES[level](snapshot):
        record: dict[str, Any] = dict.fromkeys(metrics.LEVEL_LABELS[level])
        record |= {name: value or None for name, value in zip(entity.names, entity.values, strict=True)}
        for family in families:
            record |= _fields(family, entity)
        yield record


def _fields(family: AnyFamily, entity: Entity) -> dict[str, Any]:
    if isinstance(family, Family):
        return {field_name(family): _finite(family.value(entity.row))}
    if family.several:
        return {field_name(family): list(_listed(family, entity))}
    if family.type == "info":
        return _identity(family, entity)
    return {field_name(family): _nested(family, entity)}


def _listed(family: LabelledFamily[Any], entity: Entity) -> Iterator[dict[str, str | None]]:
    for values, _ in family.samples(entity.row):
        yield {name: value or None for name, value in zip(family.labels, values, strict=True)}


def _identity(family: LabelledFamily[Any], entity: Entity) -> dict[str, str | None]:
    fields: dict[str, str | None] = dict.fromkeys(family.labels)
    for named in _listed(family, entity):
        fields |= named
    return fields


def _nested(family: LabelledFamily[Any], entity: Entity) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for (*outer, last), value in family.samples(entity.row):
        branch = tree
        for name in outer:
            branch = branch.setdefault(name, {})
        branch[last] = _finite(value)
    return tree


def _finite(value: Number | None) -> Number | None:
    return value if value is not None and math.isfinite(value) else None


def _columns(level: Level, families: Iterable[AnyFamily]) -> list[str]:
    columns = list(metrics.LEVEL_LABELS[level])
    for family in families:
        plain = isinstance(family, Family) or family.several or family.type != "info"
        columns += [field_name(family)] if plain else family.labels
    return columns


def csv_text(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return rows as CSV (RFC 4180) with a header; unknown values are empty cells.

    Text that a spreadsheet would run as a formula starts with an apostrophe.
    """
    out = io.StringIO()
    csv.writer(out).writerows((header, *(map(_cell, row) for row in rows)))
    return out.getvalue()


def _cell(value: Any) -> Any:
    """Return a value for a cell of CSV: text that a spreadsheet would run starts with an apostrophe.

    A list is its items, separated by semicolons; a record in it is its values, separated by spaces. An object
    is its ``name=value``, separated likewise.
    """
    if isinstance(value, dict):
        value = label_texts(value.items())
    if isinstance(value, list):
        value = "; ".join(
            item if isinstance(item, str) else " ".join(filter(None, item.values())) for item in value
        )
    if not isinstance(value, str):
        return value
    text = encodable(value)
    return f"'{text}" if text.startswith(_FORMULA) else text
