"""The description of the node's routes, as OpenAPI 3.1: ``/api/v1/openapi.json``."""

from collections.abc import Mapping
from functools import partial

from exporter.history import FIELDS
from exporter.web.http.responses import ADVICE_TYPES, CONTENT_TYPES
from exporter.web.openapi import describe
from exporter.web.openapi.advice_schema import advice_schema
from exporter.web.openapi.describe import (
    CSV,
    EVENTS,
    FOLLOWING,
    HTML,
    JSON,
    ONLY_JSON,
    TEXT,
    Operation,
    Operations,
    Parameter,
    Schema,
    choice,
    description,
    format_of,
    listed,
    number,
    probe,
    text,
    whole,
)
from exporter.web.openapi.schemas import schemas
from exporter.web.parameters import (
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
_RANGE = Parameter("How far back, such as 5m, 6h or 7d, from 10s to 366d.", _SPAN)
_HISTORY = {
    "range": _RANGE,
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
_FIGURE = {"id": "Its name.", "title": "Its heading.", "summary": "Its newest values as text."}
_WORDS: Schema = {"type": "string"}
_QUERY: Mapping[str, Parameter] = {
    "q": Parameter("Words that all rows must contain; the first 200 characters count.", _WORDS),
    "namespace": Parameter("Only rows of this namespace.", _WORDS),
    "gpu": Parameter("Only rows of the GPU with this number or UUID.", _WORDS),
    "state": Parameter("Only rows in this state; the page reports an unknown one.", _WORDS),
    "sort": Parameter(
        "Column to sort by; with a leading minus, largest first. The page reports an unknown one.", _WORDS
    ),
    "columns": Parameter(
        "Keys of the columns to show; the page reports unknown ones.", {"type": "array", "items": _WORDS}
    ),
    "range": Parameter(
        "Range of the timelines, such as 5m, 6h or 7d, from 10s to 366d.",
        {"type": "string", "pattern": f"^({SPAN_PATTERN})?$"},
    ),
}


_page = partial(Operation, answers={HTML: ""}, parameters=_QUERY)
_live = partial(Operation, answers={EVENTS: ""}, parameters={**_QUERY, **FOLLOWING}, tagged=False)
_figures = partial(
    Operation, answers={JSON: "Figures"}, parameters={"range": _RANGE, **ONLY_JSON}, refusals=(503,)
)

OPERATIONS: Operations = {
    "/": _page(
        "node",
        "The node as text, or as a page for clients that accept HTML.",
        answers={TEXT: "", HTML: ""},
        refusals=(503,),
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
        parameters=format_of(CONTENT_TYPES),
    ),
    "/api/v1/history": Operation(
        "history",
        "Readings of the last hours.",
        {JSON: "History"},
        words=(
            "Each value is the mean of the known values in its step, null if there are none. A range that "
            "reaches back too far is refused, and so is `namespace` or `pod` without the other, or "
            "`container` without both."
        ),
        parameters=_HISTORY
        | dict(ONLY_JSON)
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
        parameters=ONLY_JSON,
        refusals=(503,),
    ),
    "/api/v1/advice": Operation(
        "advice",
        "Which slice would fit each holder, or why that is unknown.",
        {JSON: "AdviceReport", CSV: ""},
        words="By what the node has seen since each holder came; nothing acts on it.",
        parameters=format_of(ADVICE_TYPES),
    ),
    describe.PATH: describe.DESCRIBE,
    "/-/healthy": probe("healthy", "Whether the process needs no restart.", refusals=(503,)),
    "/-/ready": probe("ready", "Whether the first poll is done.", refusals=(503,)),
    "/doctor": _page("doctor_page", "The doctor page.", refusals=(503,)),
    "/gpu/{uuid}": _page("gpu_page", "The page of a GPU.", refusals=(503, 404)),
    "/holder/{namespace}/{pod}/{container}": _page(
        "holder_page", "The page of a holder.", refusals=(503, 404)
    ),
    "/live/": _live("node_live", "Changes of the node page.", refusals=(503,)),
    "/live/doctor": _live("doctor_live", "Changes of the doctor page.", refusals=(503,)),
    "/live/gpu/{uuid}": _live("gpu_live", "Changes of the page of a GPU.", refusals=(503, 404)),
    "/live/holder/{namespace}/{pod}/{container}": _live(
        "holder_live", "Changes of the page of a holder.", refusals=(503, 404)
    ),
    "/figures/node": _figures("node_figures", "The timelines of the node."),
    "/figures/gpu/{uuid}": _figures("gpu_figures", "The timelines of a GPU; empty if it is unknown."),
    "/figures/holder/{namespace}/{pod}/{container}": _figures(
        "holder_figures", "The timelines of a holder; empty if it is unknown."
    ),
    describe.FILES: describe.FILE,
}
"""The paths of the node: first those for programs, then those of the pages."""


def document() -> Schema:
    """Return the description."""
    own = {"Figures": _figures_schema(), "AdviceReport": advice_schema()}
    return description(_ABOUT, OPERATIONS, schemas() | own)


def _figures_schema() -> Schema:
    """Return the schema of the figures of a page, in Plotly's format."""
    figure = {name: text(meaning) for name, meaning in _FIGURE.items()} | {"figure": {"type": "object"}}
    return whole(
        {
            "start": number("Unix time at which the first step begins."),
            "end": number("Unix time at which the last step ends."),
            "step": number("Seconds per step."),
            "source": choice(("memory", "prometheus"), "Source of the data."),
            "note": text("A note for readers, or empty."),
            "begins": number("Unix time of the first step with a known value.", null=True),
            "config": {"type": "object", "description": "The configuration of Plotly."},
            "figures": listed(whole(figure), "Empty if nothing is known."),
        }
    )
