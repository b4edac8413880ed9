"""The description of the node's routes, as OpenAPI 3.1: ``/api/v1/openapi.json``."""

from exporter.history import FIELDS
from exporter.web.kit.http.responses import ADVICE_TYPES, CONTENT_TYPES
from exporter.web.kit.openapi import describe
from exporter.web.kit.openapi.advice_schema import advice_schema
from exporter.web.kit.openapi.describe import CSV, JSON, TEXT, Operation, Parameter, Schema, choice
from exporter.web.node.openapi.schemas import schemas
from exporter.web.node.parameters import (
    DEFAULT_POINTS,
    DEFAULT_SPAN,
    LATEST,
    LONGEST_NAMES,
    MOST_POINTS,
    SPAN_PATTERN,
)

_ABOUT = """\
The GPUs of one node, the holders of their slices, and their use. The API is read-only. HEAD returns the
headers of GET. Unknown parameters are ignored.

Unknown values are null, never 0, and no field is left out. Fields may be added. Units are base units; a ratio
of 1 is a whole physical GPU."""
_POINTS = {"type": "integer", "minimum": 1, "maximum": MOST_POINTS, "default": DEFAULT_POINTS}
_SPAN = {"type": "string", "pattern": f"^{SPAN_PATTERN}$", "default": DEFAULT_SPAN}
_LEVELS = {
    "type": "array",
    "items": choice(FIELDS),
    "minItems": 1,
    "maxItems": len(FIELDS),
    "uniqueItems": True,
}
_HISTORY = {
    "range": Parameter("How far back, such as 5m, 1h or 6h, at least 10s.", _SPAN),
    "end": Parameter(
        "End of the range, as Unix time in seconds; by default now.",
        {"type": "number", "minimum": 0, "maximum": LATEST},
    ),
    "points": Parameter("Maximum number of steps.", _POINTS),
    "level": Parameter("Levels to return; by default all.", _LEVELS),
}
_NAMES = {
    "uuid": "Only this GPU.",
    "namespace": "Only one pod; needs `pod`.",
    "pod": "Only one pod; needs `namespace`.",
    "container": "Only this container of the pod.",
}
OPERATIONS: describe.Operations = {
    "/": Operation(
        "node",
        "The node as text.",
        {TEXT: ""},
        words="For clients that accept HTML a page, which is not described here.",
    ),
    "/metrics": Operation(
        "metrics",
        "All series, for Prometheus.",
        {"text/plain; version=0.0.4": "", "application/openmetrics-text; version=1.0.0": ""},
        tagged=False,
    ),
    "/api/v1/snapshot": Operation(
        "snapshot",
        "All results of the last poll.",
        {JSON: "Snapshot", CSV: "", TEXT: ""},
        words="As JSON; its containers as CSV; or the node as text.",
        parameters=describe.format_of(CONTENT_TYPES),
    ),
    "/api/v1/history": Operation(
        "history",
        "Readings of the last hours.",
        {JSON: "History"},
        words=(
            "Each value is the mean of the known values in its step, null if there are none. A range that "
            "begins before what is kept is refused, and so is `namespace` or `pod` without the other, or "
            "`container` without both."
        ),
        parameters=_HISTORY
        | dict(describe.ONLY_JSON)
        | {
            name: Parameter(meaning, {"type": "string", "minLength": 1, "maxLength": LONGEST_NAMES[name]})
            for name, meaning in _NAMES.items()
        },
        refusals=(503,),
    ),
    "/api/v1/doctor": Operation(
        "doctor",
        "What is degraded or missing on this node, and how to fix it.",
        {JSON: "Report"},
        parameters=describe.ONLY_JSON,
        refusals=(503,),
    ),
    "/api/v1/advice": Operation(
        "advice",
        "Which slice would fit each holder, or why that is unknown.",
        {JSON: "AdviceReport", CSV: ""},
        words="By what the node has seen since each holder came; nothing acts on it.",
        parameters=describe.format_of(ADVICE_TYPES),
    ),
    describe.PATH: describe.DESCRIBE,
    "/-/healthy": describe.probe("healthy", "Whether the process needs no restart.", refusals=(503,)),
    "/-/ready": describe.probe("ready", "Whether the first poll is done.", refusals=(503,)),
}
"""The paths of a node for programs."""


def document() -> Schema:
    """Return the description."""
    return describe.description(_ABOUT, OPERATIONS, schemas() | {"AdviceReport": advice_schema()})
