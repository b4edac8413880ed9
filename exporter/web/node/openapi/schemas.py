"""The documents of the API as JSON Schema, made from the table of series. Unknown fields are null."""

from collections.abc import Iterable, Mapping, Sequence
from typing import get_args

from exporter import metrics
from exporter.doctor import EXIT_CODES
from exporter.history import FIELDS
from exporter.metrics import AnyFamily, Family, Level, field_name
from exporter.model.hardware import ProcessKind
from exporter.model.snapshot import ProcessWhere
from exporter.model.states import STATE_WORDS
from exporter.model.xids import XidClass
from exporter.web.kit.openapi.describe import Schema, choice, flag, listed, number, reference, text, whole

ROWS: Mapping[str, tuple[str, Level, Sequence[AnyFamily]]] = {
    "gpus": ("Gpu", "gpu", metrics.GPU),
    "migs": ("Mig", "mig", metrics.MIG),
    "vgpus": ("Vgpu", "vgpu", metrics.VGPU),
    "containers": ("Container", "container", metrics.CONTAINER),
    "collectors": ("Collector", "collector", metrics.COLLECTOR),
}
"""The lists of a snapshot made from the table of series: the name of a row, its level and its families."""

_NODE: tuple[str, Level, Sequence[AnyFamily]] = ("Node", "node", metrics.NODE)
_LABELS = {
    "node": "Name of the node.",
    "gpu": "NVML index of the GPU; null if unknown.",
    "profile": "MIG profile or AMD partition mode; null if unknown.",
    "uuid": "UUID of the GPU.",
    "mig_uuid": "UUID of the MIG device, or name of the partition; null for a whole GPU.",
    "vgpu_uuid": "UUID of the vGPU.",
    "namespace": "Namespace of the pod.",
    "pod": "Name of the pod.",
    "pod_uid": "UID of the pod.",
    "container": "Name of the container; null if the containers of a pod cannot be distinguished.",
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
_LEFT_OUT = "Number of processes that are not listed because there are too many."
_SEQUENCE = "Number of the poll since the exporter's start; 0 before the first."


def schemas() -> dict[str, Schema]:
    """Return all schemas by name."""
    rows: dict[str, Schema] = {}
    for name, level, families in (_NODE, *ROWS.values()):
        fields = _labels(metrics.LEVEL_LABELS[level])
        for family in families:
            fields |= _of_family(family)
        fields |= _without_series().get(name, {})
        rows[name] = whole(fields)
    return rows | {
        "Pod": _pod(),
        "Process": _process(),
        "Event": _event(),
        "Snapshot": _snapshot(),
        "History": _history(),
        "Report": _report(),
    }


def _labels(names: Iterable[str]) -> dict[str, Schema]:
    return {name: text(_LABELS[name], null=True) for name in names}


def _without_series() -> Mapping[str, dict[str, Schema]]:
    """Return the fields that have no series, by the name of their row."""
    idle = number("Seconds that a quiet or idle container has not computed; null for others.", null=True)
    return {
        "Node": {
            "process_attribution_reason": text("Why per-process usage is not attributed; empty if it is.")
        },
        "Gpu": {"raised": _raised()},
        "Collector": {"message": text("The error and what to do; empty if there is none.")},
        "Container": {
            "pod_labels": {
                "type": ["object", "null"],
                "additionalProperties": {"type": "string"},
                "description": "Labels of its pod as in pods; null if none is selected, or they are unknown.",
            },
            "state": choice(STATE_WORDS, "State of the container at the time of the poll."),
            "other_states": listed(choice(STATE_WORDS), "States that it is in besides."),
            "quiet_seconds": idle | {"x-unit": "seconds"},
        },
    }


def _raised() -> Schema:
    raised = whole(
        {
            "since": number("When it began, or was first observed, in Unix seconds."),
            "causes": listed({"type": "string"}, "What raises it, one phrase each."),
        }
    )
    meaning = "The conditions that the GPU has, by name."
    return {"type": "object", "additionalProperties": raised, "description": meaning}


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
    known = next((unit for unit in _UNITS if bare.endswith(unit)), None)
    return {"x-unit": known} if known else {}


def _pod() -> Schema:
    values = {"type": "object", "additionalProperties": {"type": "string"}}
    return whole(
        {name: text(_LABELS[name]) for name in ("namespace", "pod", "pod_uid")}
        | {"labels": values | {"description": "Its labels that --pod-labels selects, and that of advice."}}
    )


def _process() -> Schema:
    return whole(
        {
            **_labels(("uuid", "mig_uuid")),
            "pid": number("Process id on the host.", kind="integer"),
            "command": text("Name of the process in the kernel, which the process can change.", null=True),
            "kinds": listed({"enum": list(get_args(ProcessKind))}, "The kinds of its contexts."),
            "place": choice(get_args(ProcessWhere), "Whether it runs in a pod, on the host, or is unknown."),
            **_labels(("namespace", "pod", "container")),
            "memory_used_bytes": number("Memory of the device that it uses.", null=True),
            "compute_used_ratio": number("Share of the physical GPU's compute that it uses.", null=True),
        },
        "A process with a context on a device; one with several has an entry for each.",
    )


def _event() -> Schema:
    return whole(
        {
            "timestamp": number(_TIME),
            **_labels(("uuid", "mig_uuid")),
            "kind": text("`xid`, or another kind of event that `events_total` of a GPU counts."),
            "xid": number("The code of an XID error.", null=True, kind="integer"),
            "class": choice(get_args(XidClass), "The class of the XID: where to look first.", null=True),
            "meaning": text("The meaning of the code.", null=True),
            "action": text("What to do.", null=True),
            "holders": listed(
                whole({name: text(_LABELS[name]) for name in ("namespace", "pod", "container")}),
                "The containers that held the device at the time.",
            ),
        },
        "An event reported by a GPU.",
    )


def _snapshot() -> Schema:
    rows = {
        name: listed(reference(row), f"All {row} rows, in stable order.") for name, (row, *_) in ROWS.items()
    }
    return whole(
        {
            "timestamp": number(_TIME),
            "sequence": number(_SEQUENCE, kind="integer"),
            "demo": flag("Whether the node is simulated."),
            "node": reference("Node"),
            **rows,
            "pods": listed(reference("Pod"), "Pods that have labels to show."),
            "processes": listed(reference("Process"), "By device and pid; empty if they are not visible."),
            "processes_left_out": number(_LEFT_OUT, kind="integer"),
            "events": listed(reference("Event"), "The newest events, oldest first."),
        },
        "All results of one poll.",
    )


def _history() -> Schema:
    values = listed({"type": ["number", "null"]}, "One mean per step, null if unknown.")
    series = [
        whole({"level": {"const": level}} | _labels(labels) | dict.fromkeys(FIELDS[level], values))
        for level, labels in metrics.IDENTITY_LABELS.items()
        if level in FIELDS
    ]
    return whole(
        {
            "start": number("Unix time at which the first step begins."),
            "end": number("Unix time at which the last step ends."),
            "step": number("Seconds per step."),
            "count": number("Number of steps.", kind="integer"),
            "source": choice(("memory",), "Source of the data."),
            "note": text("A note for readers, such as why a part is missing, or empty."),
            "series": listed({"anyOf": series}, "One for each GPU, MIG device and container."),
        }
    )


def _report() -> Schema:
    check = {
        "name": text("Name of the check."),
        "status": choice(EXIT_CODES, "`absent`: this hardware or its mode does not have it."),
        "found": text("The result."),
        "lost": text("The data that is missing for this reason; empty if none is."),
        "remedy": text("How to fix it; empty if there is nothing to fix."),
        "code": text("Stable name of the cause; empty if the status is OK."),
        "url": text("Documentation of the cause; empty if the status is OK."),
    }
    return whole(
        {
            "node": text("Name of the node."),
            "exit_code": {
                "enum": sorted(set(EXIT_CODES.values())),
                "description": "Exit code of the worst check.",
            },
            "checks": listed(whole(check), "Each check after those that it depends on."),
        },
        "The report of `gpuslice-exporter doctor`.",
    )
