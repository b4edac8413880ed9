"""What the documents of the API look like, as JSON Schema, made from the table of series.

A field that can be unknown is there all the same, and null.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, get_args

from exporter.doctor.report import EXIT_CODES
from exporter.history.past import FIELDS
from exporter.metrics import (
    COLLECTOR,
    CONTAINER,
    GPU,
    LEVEL_LABELS,
    MIG,
    NODE,
    VGPU,
    AnyFamily,
    Family,
    Level,
    field_name,
)
from exporter.model.hardware import ProcessKind
from exporter.model.snapshot import ProcessWhere
from exporter.model.xids import XidClass
from exporter.web.api.field_schemas import FURTHER

Schema: TypeAlias = dict[str, Any]

ROWS: Mapping[str, tuple[str, Level, Sequence[AnyFamily]]] = {
    "gpus": ("Gpu", "gpu", GPU),
    "migs": ("Mig", "mig", MIG),
    "vgpus": ("Vgpu", "vgpu", VGPU),
    "containers": ("Container", "container", CONTAINER),
    "collectors": ("Collector", "collector", COLLECTOR),
}
"""The lists of a snapshot that are made from the table: what a row is called, its level and families."""

_NODE: tuple[str, Level, Sequence[AnyFamily]] = ("Node", "node", NODE)
_LABELS = {
    "uuid": "UUID of the GPU.",
    "mig_uuid": "UUID of the MIG device, or name of the partition; null for what is of a whole GPU.",
    "vgpu_uuid": "UUID of the vGPU.",
    "namespace": "Namespace of the pod.",
    "pod": "Name of the pod.",
    "pod_uid": "UID of the pod.",
    "container": "Name of the container; null where the containers of a pod cannot be told apart.",
    "collector": "Name of the source of data.",
}
_UNITS = (
    "bytes_per_second",
    "gpu_seconds",
    "bytes",
    "celsius",
    "hertz",
    "joules",
    "ratio",
    "seconds",
    "watts",
)
_TIME = "Unix time in seconds."
_SEQUENCE = "Number of the poll since the exporter's start; 0 before the first."


def schemas() -> dict[str, Schema]:
    """Make all schemas by their names."""
    made: dict[str, Schema] = {}
    for name, level, families in (_NODE, *ROWS.values()):
        fields = {**_fields(level, families), **FURTHER.get(name, {})}
        made[f"{name}Fields"] = {"type": "object", "properties": fields}
        made[name] = {**reference(f"{name}Fields"), "required": list(fields)}
    return made | {
        "Pod": _pod(),
        "Process": _process(),
        "Event": _event(),
        "Snapshot": _snapshot(),
        "Delta": _delta(),
        "History": _history(),
        "Report": _report(),
    }


def whole(properties: Mapping[str, Schema], meaning: str = "") -> Schema:
    """Make the schema of an object that always has all of these."""
    described = {"description": meaning} if meaning else {}
    return {"type": "object", **described, "properties": dict(properties), "required": list(properties)}


def text(meaning: str, *, null: bool = False) -> Schema:
    """Make the schema of a text."""
    return {"type": ["string", "null"] if null else "string", "description": meaning}


def number(meaning: str, *, null: bool = False, kind: str = "number") -> Schema:
    """Make the schema of a number."""
    return {"type": [kind, "null"] if null else kind, "description": meaning}


def choice(options: Iterable[str], meaning: str = "", *, null: bool = False) -> Schema:
    """Make the schema of one text of several."""
    described = {"description": meaning} if meaning else {}
    return {"enum": [*options, None] if null else list(options), **described}


def listed(items: Schema, meaning: str) -> Schema:
    """Make the schema of a list."""
    return {"type": "array", "items": items, "description": meaning}


def reference(name: str) -> Schema:
    """Refer to the schema of that name."""
    return {"$ref": f"#/components/schemas/{name}"}


def _labels(names: Iterable[str]) -> dict[str, Schema]:
    return {name: text(_LABELS[name], null=True) for name in names}


def _fields(level: Level, families: Iterable[AnyFamily]) -> dict[str, Schema]:
    fields = _labels(LEVEL_LABELS[level])
    for family in families:
        fields |= _of_family(family)
    return fields


def _of_family(family: AnyFamily) -> dict[str, Schema]:
    name, known = field_name(family), {"x-series": family.name}
    if isinstance(family, Family):
        return {name: number(family.help, null=True) | _unit(name) | known}
    if family.several:
        items = {label: text(f"The label {label} of the series.", null=True) for label in family.labels}
        return {name: listed(whole(items), family.help) | known}
    if family.type == "info":
        meanings = {label: f"The label {label} of: {family.help}" for label in family.labels}
        return {label: text(meaning, null=True) | known for label, meaning in meanings.items()}
    schema: Schema = {"type": ["number", "null"]} | _unit(name)
    for _ in family.labels:
        schema = {"type": "object", "additionalProperties": schema}
    return {name: schema | {"description": f"{family.help} Keys: {', then '.join(family.labels)}."} | known}


def _unit(name: str) -> Schema:
    bare = name.removesuffix("_total").removesuffix("_timestamp_seconds")
    found = next((unit for unit in _UNITS if bare.endswith(unit)), None)
    return {"x-unit": found} if found else {}


def _pod() -> Schema:
    values = {"type": "object", "additionalProperties": {"type": "string"}}
    return whole(
        {name: text(_LABELS[name]) for name in ("namespace", "pod", "pod_uid")}
        | {"labels": values | {"description": "Its labels, as far as --pod-labels lets them through."}}
    )


def _process() -> Schema:
    return whole(
        {
            **_labels(("uuid", "mig_uuid")),
            "pid": number("Process id on the host.", kind="integer"),
            "command": text("The kernel's short name of the process, which its owner can choose.", null=True),
            "kinds": listed({"enum": list(get_args(ProcessKind))}, "What its contexts are for."),
            "place": choice(get_args(ProcessWhere), "Whether it runs in a pod, in none, or nobody can tell."),
            **_labels(("namespace", "pod", "container")),
            "memory_used_bytes": number("Memory of the device that it holds.", null=True),
            "compute_used_ratio": number("Share of the physical GPU's compute that it uses.", null=True),
        },
        "A process with a context on a device; one with several has an entry for each.",
    )


def _event() -> Schema:
    return whole(
        {
            "timestamp": number(_TIME),
            **_labels(("uuid", "mig_uuid")),
            "kind": text("`xid`, or one of the other events that `events_total` of a GPU counts."),
            "xid": number("The code of an XID error.", null=True, kind="integer"),
            "class": choice(get_args(XidClass), "What has to be looked at first.", null=True),
            "meaning": text("What the code means.", null=True),
            "action": text("What to do.", null=True),
            "holders": listed(
                whole({name: text(_LABELS[name]) for name in ("namespace", "pod", "container")}),
                "The containers that held the device then.",
            ),
        },
        "Something that a GPU reported by itself.",
    )


def _snapshot() -> Schema:
    rows = {
        name: listed(reference(row), f"One {row} each, in stable order.") for name, (row, *_) in ROWS.items()
    }
    return whole(
        {
            "timestamp": number(_TIME),
            "sequence": number(_SEQUENCE, kind="integer"),
            "demo": {"type": "boolean", "description": "Whether the node exists in software only."},
            "node": reference("Node"),
            **rows,
            "pods": listed(reference("Pod"), "Pods that have labels to show."),
            "processes": listed(reference("Process"), "By device and pid; none where they cannot be seen."),
            "processes_left_out": number("Processes too many to be listed.", kind="integer"),
            "events": listed(reference("Event"), "The newest, oldest first."),
        },
        "Everything that one poll found.",
    )


def _delta() -> Schema:
    """Describe the data of a delta; the rows of a level keep their identity, other lists come as a whole."""
    identities = {name: LEVEL_LABELS[level] for name, (_, level, _) in ROWS.items()}
    rows = {
        name: _rows(
            {**reference(f"{row}Fields"), "required": list(identities[name])},
            identities[name],
            reference(row),
        )
        for name, (row, *_) in ROWS.items()
    }
    pod = LEVEL_LABELS["pod"]
    return {
        "type": "object",
        "description": "What is new since the snapshot before; what is not named is as it was.",
        "required": ["sequence", "timestamp"],
        "properties": {
            "timestamp": number(_TIME),
            "sequence": number(_SEQUENCE, kind="integer"),
            "demo": {"type": "boolean"},
            "node": reference("NodeFields"),
            **rows,
            "pods": _rows({**_pod(), "required": list(pod)}, pod, reference("Pod")),
            "processes": listed(reference("Process"), "All of them."),
            "processes_left_out": number("Processes too many to be listed.", kind="integer"),
            "events": listed(reference("Event"), "All of them."),
        },
    }


def _rows(changed: Schema, labels: Sequence[str], row: Schema) -> Schema:
    identity = whole(_labels(labels))
    properties = {
        "changed": listed(changed, "By their labels, with the fields that are new."),
        "gone": listed(identity, "Rows that are not there any more."),
        "order": listed(identity, "All rows, where their order has changed."),
    }
    by_row = {"type": "object", "properties": properties, "required": ["changed", "gone"]}
    return {"anyOf": [by_row, listed(row, "All rows.")]}


def _history() -> Schema:
    values = listed({"type": ["number", "null"]}, "One mean per step, null where nothing was known.")
    series = [
        whole({"level": {"const": level}} | _labels(labels) | dict.fromkeys(FIELDS[level], values))
        for level, labels in LEVEL_LABELS.items()
        if level in FIELDS
    ]
    return whole(
        {
            "start": number("Unix time at which the first step begins."),
            "end": number("Unix time at which the last step ends."),
            "step": number("Seconds of a step."),
            "count": number("How many steps there are.", kind="integer"),
            "source": choice(("memory", "prometheus"), "Who remembered it."),
            "note": text("What to know of it, such as why a part is missing; empty where that is nothing."),
            "series": listed({"anyOf": series}, "One object for each thing that was there."),
        }
    )


def _report() -> Schema:
    check = {
        "name": text("What was looked at."),
        "status": choice(EXIT_CODES, "`absent` is what this hardware or its mode does not have."),
        "found": text("What was found."),
        "lost": text("What is not known for that reason; empty where all is well."),
        "remedy": text("How to mend it; empty where all is well."),
        "code": text("Name of the cause, which does not change; empty where the status is OK."),
        "url": text("Where the cause is explained; empty where the status is OK."),
    }
    return whole(
        {
            "node": text("Name of the node."),
            "exit_code": {
                "enum": sorted(set(EXIT_CODES.values())),
                "description": "That of the worst check.",
            },
            "checks": listed(whole(check), "In the order in which one stands on the other."),
        },
        "What `gpuslice-exporter doctor` would say.",
    )
