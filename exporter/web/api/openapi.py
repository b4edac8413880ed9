"""The description of the node's routes, as OpenAPI 3.1: ``/api/v1/openapi.json``."""

from collections.abc import Mapping

from aiohttp import web

from exporter.history.past import FIELDS
from exporter.web.api import describe
from exporter.web.api.describe import (
    CSV,
    EVENTS,
    FOLLOWING,
    HTML,
    JSON,
    TEXT,
    Operation,
    Operations,
    Parameter,
    description,
    probe,
)
from exporter.web.api.routes import FORMS
from exporter.web.api.schemas import Schema, choice, listed, number, reference, schemas, text, whole
from exporter.web.live import snapshot_stream
from exporter.web.timelines.query import (
    DEFAULT_POINTS,
    DEFAULT_SPAN,
    LATEST,
    LONGEST_NAMES,
    MOST_POINTS,
    SPAN_PATTERN,
)

_ABOUT = """\
What one node knows of its GPUs, who holds which slice of them, and what they use. Nothing can be changed.
HEAD is answered as GET is, without a body. A parameter that is not described is passed over.

A field is there even where its value is not known: then it is null, never 0. Fields may be added. Units are
base units, and ratios are of 1, where 1 is a whole physical GPU."""
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
        "Unix time in seconds up to which; now, by default.",
        {"type": "number", "minimum": 0, "maximum": LATEST},
    ),
    "points": Parameter("At most so many steps.", _POINTS),
    "level": Parameter("Of which levels; of all, by default.", _LEVELS),
}
_NAMES = {
    "uuid": "Of one GPU only.",
    "namespace": "Of one pod only, with `pod`.",
    "pod": "Of one pod only, with `namespace`.",
    "container": "Of one container of that pod only.",
}
_FIGURE = {"id": "Its name.", "title": "Its heading.", "summary": "Its newest numbers in words."}
_WORDS: Schema = {"type": "string"}
_QUERY: Mapping[str, Parameter] = {
    "q": Parameter("Words that rows have to have; the first 200 characters count.", _WORDS),
    "namespace": Parameter("Rows of this namespace only.", _WORDS),
    "gpu": Parameter("Rows of the GPU of this number or UUID only.", _WORDS),
    "state": Parameter("Rows in this state only; the page names one that it does not know.", _WORDS),
    "sort": Parameter(
        "Column to sort by, after a minus the largest first; the page names one that it does not know.",
        _WORDS,
    ),
    "columns": Parameter(
        "Keys of the columns to show; the page names those that it does not know.",
        {"type": "array", "items": _WORDS},
    ),
    "range": Parameter(
        "Span of the timelines, such as 5m, 6h or 7d, from 10s to 366d.",
        {"type": "string", "pattern": f"^({SPAN_PATTERN})?$"},
    ),
}


def _page(name: str, summary: str, *refusals: int) -> Operation:
    return Operation(
        name=name, summary=summary, answers={HTML: ""}, parameters=_QUERY, refusals=(503, *refusals)
    )


def _live(name: str, summary: str, *refusals: int) -> Operation:
    return Operation(
        name=name,
        summary=summary,
        answers={EVENTS: ""},
        parameters={**_QUERY, **FOLLOWING},
        refusals=(503, *refusals),
        tagged=False,
    )


def _figures(name: str, summary: str) -> Operation:
    return Operation(
        name=name, summary=summary, answers={JSON: "Figures"}, parameters={"range": _RANGE}, refusals=(503,)
    )


OPERATIONS: Operations = {
    "/": Operation(
        name="node",
        summary="The node as text; the page, to clients that name HTML.",
        answers={TEXT: "", HTML: ""},
        parameters=_QUERY,
        refusals=(503,),
    ),
    "/metrics": Operation(
        name="metrics",
        summary="All series, for Prometheus.",
        answers={"text/plain; version=0.0.4": "", "application/openmetrics-text; version=1.0.0": ""},
        tagged=False,
    ),
    "/api/v1/snapshot": Operation(
        name="snapshot",
        summary="Everything that the last poll found.",
        words="As JSON; its containers as CSV; or the node as text.",
        answers={JSON: "Snapshot", CSV: "", TEXT: ""},
        parameters={
            "format": Parameter("The form of the answer, in place of an Accept header.", choice(FORMS)),
        },
    ),
    "/api/v1/stream": Operation(
        name="stream",
        summary="The snapshot, kept up to date by events.",
        words=f"{snapshot_stream.__doc__}\n\nData of `snapshot` is a Snapshot, of `delta` a Delta.",
        answers={EVENTS: "StreamEvent"},
        parameters=FOLLOWING,
        refusals=(503,),
        tagged=False,
    ),
    "/api/v1/history": Operation(
        name="history",
        summary="What was: readings of the last hours.",
        words=(
            "Each value is the mean of what was known in its step, null where nothing was. A range that "
            "reaches back further than is kept is refused, and so is `namespace` or `pod` without the other, "
            "or `container` without both."
        ),
        answers={JSON: "History"},
        parameters=_HISTORY
        | {
            name: Parameter(meaning, {"type": "string", "minLength": 1, "maxLength": LONGEST_NAMES[name]})
            for name, meaning in _NAMES.items()
        },
        refusals=(503,),
    ),
    "/api/v1/doctor": Operation(
        name="doctor",
        summary="What is degraded or missing here, and how to mend it.",
        answers={JSON: "Report"},
        refusals=(503,),
    ),
    describe.PATH: Operation(name="describe", summary="This description.", answers={JSON: "Description"}),
    "/-/healthy": probe("healthy", "Whether no restart is needed.", (503,)),
    "/-/ready": probe("ready", "Whether the first poll is done.", (503,)),
    "/doctor": _page("doctor_page", "The page of the doctor."),
    "/gpu/{uuid}": _page("gpu_page", "The page of a GPU.", 404),
    "/holder/{namespace}/{pod}/{container}": _page("holder_page", "The page of a holder.", 404),
    "/live/": _live("node_live", "What changes on the page of the node."),
    "/live/doctor": _live("doctor_live", "What changes on the page of the doctor."),
    "/live/gpu/{uuid}": _live("gpu_live", "What changes on the page of a GPU.", 404),
    "/live/holder/{namespace}/{pod}/{container}": _live(
        "holder_live", "What changes on the page of a holder.", 404
    ),
    "/figures/node": _figures("node_figures", "The timelines of the node."),
    "/figures/gpu/{uuid}": _figures("gpu_figures", "The timelines of a GPU; none of one that is not known."),
    "/figures/holder/{namespace}/{pod}/{container}": _figures(
        "holder_figures", "The timelines of a holder; none of one that is not known."
    ),
    describe.FILES: describe.files(),
}
"""The paths of the node: first those for programs, then those of the pages."""


def routes() -> list[web.RouteDef]:
    """List the route of the description."""
    return [describe.route(document)]


def document() -> Schema:
    """Make the description."""
    further = {"StreamEvent": _stream_event(), "Figures": _figures_schema()}
    return description(_ABOUT, OPERATIONS, schemas() | further)


def _stream_event() -> Schema:
    """Describe one event as its fields on the wire; ``data`` is JSON."""

    def event(kind: str, schema: str) -> Schema:
        data = {"type": "string", "contentMediaType": JSON, "contentSchema": reference(schema)}
        return whole({"event": {"const": kind}, "id": {"type": "string"}, "data": data})

    return {"oneOf": [event("snapshot", "Snapshot"), event("delta", "Delta")]}


def _figures_schema() -> Schema:
    """Describe the figures of a page, which Plotly takes as they are."""
    figure = {name: text(meaning) for name, meaning in _FIGURE.items()} | {"figure": {"type": "object"}}
    return whole(
        {
            "start": number("Unix time at which the first step begins."),
            "end": number("Unix time at which the last step ends."),
            "step": number("Seconds of a step."),
            "source": choice(("memory", "prometheus"), "Who remembered it."),
            "note": text("What to know of it; empty where that is nothing."),
            "begins": number("Unix time of the first step of which anything is known.", null=True),
            "config": {"type": "object", "description": "What Plotly is started with."},
            "figures": listed(whole(figure), "None where nothing is known."),
        }
    )
