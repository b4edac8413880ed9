"""The description of the API for programs, as OpenAPI 3.1: ``/api/v1/openapi.json``."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from aiohttp import web

from exporter import __version__
from exporter.history.past import FIELDS
from exporter.web.api.schemas import Schema, choice, reference, schemas, whole
from exporter.web.serving.responses import reply
from exporter.web.streams import stream
from exporter.web.timelines.query import DEFAULT_POINTS, DEFAULT_SPAN, MOST_POINTS

_JSON, _TEXT, _CSV, _HTML = "application/json", "text/plain", "text/csv", "text/html"
_ABOUT = """\
What one node knows of its GPUs, who holds which slice of them, and what they use. Nothing can be changed.

A field is there even where its value is not known: then it is null, never 0. Fields may be added. Units are
base units, and ratios are of 1, where 1 is a whole physical GPU."""
_POINTS = {"type": "integer", "minimum": 1, "maximum": MOST_POINTS, "default": DEFAULT_POINTS}
_REFUSALS = {
    400: "The request cannot be understood; the text says why.",
    404: "There is no such thing.",
    503: "Not now; the text says why.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What one path answers.

    ``answers`` maps media types to the schemas that they are written in, "" for plain text, ``parameters``
    names in the query to their meaning and schema. ``refusals`` are the errors that a client can meet.
    """

    name: str
    summary: str
    answers: Mapping[str, str]
    words: str = ""
    parameters: Mapping[str, tuple[str, Schema]] = field(default_factory=dict)
    refusals: tuple[int, ...] = ()


OPERATIONS: Mapping[str, Operation] = {
    "/": Operation(
        name="node",
        summary="The node as text; the page, to clients that name HTML.",
        answers={_TEXT: "", _HTML: ""},
        refusals=(503,),
    ),
    "/metrics": Operation(
        name="metrics",
        summary="All series, for Prometheus.",
        answers={"text/plain; version=0.0.4": "", "application/openmetrics-text; version=1.0.0": ""},
    ),
    "/api/v1/snapshot": Operation(
        name="snapshot",
        summary="Everything that the last poll found.",
        words="As JSON; its containers as CSV; or the node as text.",
        answers={_JSON: "Snapshot", _CSV: "", _TEXT: ""},
        parameters={
            "format": (
                "The form of the answer, in place of an Accept header.",
                choice(("json", "csv", "text")),
            )
        },
        refusals=(400,),
    ),
    "/api/v1/stream": Operation(
        name="stream",
        summary="The snapshot, kept up to date by events.",
        words=f"{stream.__doc__}\n\nData of `snapshot` is a Snapshot, of `delta` a Delta.",
        answers={"text/event-stream": "StreamEvent"},
        refusals=(503,),
    ),
    "/api/v1/history": Operation(
        name="history",
        summary="What was: readings of the last hours.",
        words="Each value is the mean of what was known in its step, null where nothing was.",
        answers={_JSON: "History"},
        parameters={
            "range": ("How far back, such as 5m, 6h or 7d.", {"type": "string", "default": DEFAULT_SPAN}),
            "end": ("Unix time in seconds up to which; now, by default.", {"type": "number"}),
            "points": ("At most so many steps.", _POINTS),
            "level": ("Of which levels; of all, by default.", {"type": "array", "items": choice(FIELDS)}),
            "uuid": ("Of one GPU only.", {"type": "string"}),
            "namespace": ("Of one pod only, with `pod`.", {"type": "string"}),
            "pod": ("Of one pod only, with `namespace`.", {"type": "string"}),
            "container": ("Of one container of that pod only.", {"type": "string"}),
        },
        refusals=(400, 503),
    ),
    "/api/v1/doctor": Operation(
        name="doctor",
        summary="What is degraded or missing here, and how to mend it.",
        answers={_JSON: "Report"},
        refusals=(503,),
    ),
    "/api/v1/openapi.json": Operation(
        name="describe", summary="This description.", answers={_JSON: "Description"}
    ),
    "/-/healthy": Operation(
        name="healthy", summary="Whether no restart is needed.", answers={_TEXT: ""}, refusals=(503,)
    ),
    "/-/ready": Operation(
        name="ready", summary="Whether the first poll is done.", answers={_TEXT: ""}, refusals=(503,)
    ),
}
"""The paths for programs."""


def routes() -> list[web.RouteDef]:
    """List the route of the description."""

    async def describe(request: web.Request) -> web.Response:
        return await reply(request, _written(), f"{_JSON}; charset=utf-8")

    return [web.get("/api/v1/openapi.json", describe)]


def document() -> Schema:
    """Make the description."""
    refusal = {_TEXT: {"schema": {"type": "string"}}, _JSON: {"schema": reference("Error")}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "gpuslice-exporter",
            "version": __version__,
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        # Relative to this document, so that it is right behind any proxy.
        "servers": [{"url": "../.."}],
        "paths": {path: {"get": _described(operation)} for path, operation in OPERATIONS.items()},
        "components": {
            "schemas": schemas() | {"Description": {"type": "object"}, "StreamEvent": _stream_event()},
            "responses": {
                f"{status}": {"description": meaning, "content": refusal}
                for status, meaning in _REFUSALS.items()
            },
        },
    }


def _stream_event() -> Schema:
    """Describe one event as its fields on the wire; ``data`` is JSON."""

    def event(kind: str, schema: str) -> Schema:
        data = {"type": "string", "contentMediaType": _JSON, "contentSchema": reference(schema)}
        return whole({"event": {"const": kind}, "id": {"type": "string"}, "data": data})

    return {"oneOf": [event("snapshot", "Snapshot"), event("delta", "Delta")]}


@cache
def _written() -> bytes:
    return json.dumps(document()).encode()


def _described(operation: Operation) -> Schema:
    refusals = {f"{status}": {"$ref": f"#/components/responses/{status}"} for status in operation.refusals}
    content = {
        kind: {"schema": reference(schema) if schema else {"type": "string"}}
        for kind, schema in operation.answers.items()
    }
    return {
        "operationId": operation.name,
        "summary": operation.summary,
        **({"description": operation.words} if operation.words else {}),
        "parameters": [
            {"name": name, "in": "query", "description": meaning, "schema": schema}
            for name, (meaning, schema) in operation.parameters.items()
        ],
        "responses": {"200": {"description": "The answer.", "content": content}, **refusals},
    }
