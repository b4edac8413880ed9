"""Descriptions of routes as OpenAPI 3.1: what each takes, and every status that it can answer with."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from aiohttp import web

from exporter import __version__
from exporter.web.api.schemas import Schema, reference, text, whole
from exporter.web.http.responses import reply
from exporter.web.live.broadcaster import LONGEST_ID

JSON, TEXT, CSV, HTML, EVENTS = "application/json", "text/plain", "text/csv", "text/html", "text/event-stream"
PATH = "/api/v1/openapi.json"
FILES = "/static/{hash}/{name}"
# Requests may be refused before a route is looked at: for their form, their body, or what they expect.
_ALWAYS = (400, 413, 417, 500, 505)
_GUARDED = (401, 429)
_MEANINGS = {
    400: "The request cannot be understood; the text says why.",
    401: "A user name and a password are needed, by the web configuration.",
    404: "There is no such thing.",
    413: "A request with a body is not answered.",
    417: "What the request expects is not done here.",
    429: "More requests or wrong passwords come than are taken.",
    500: "The answer could not be made; the log says why.",
    503: "Not now; the text says why.",
    505: "Only HTTP/1.0 and HTTP/1.1 are spoken.",
}
_HEADERS: Mapping[int, Mapping[str, Schema]] = {
    401: {"WWW-Authenticate": {"description": "How to log in.", "required": True}},
    429: {"Retry-After": {"description": "Seconds to wait.", "required": True}},
    503: {"Retry-After": {"description": "Seconds to wait, if that is known."}},
}
_IN_PATH = re.compile(r"\{([a-z]+)\}")


class Parameter(NamedTuple):
    """A parameter of the query, or of ``place`` "header"."""

    meaning: str
    schema: Schema
    place: str = "query"


IF_NONE_MATCH = Parameter("ETags of answers that the client has.", {"type": "string"}, "header")
FOLLOWING: Mapping[str, Parameter] = {
    "since": Parameter(
        "Id of the last event that the client has.",
        {"type": "string", "minLength": 1, "maxLength": LONGEST_ID},
    ),
    "Last-Event-ID": Parameter("The same, which comes first.", {"type": "string"}, "header"),
}
"""What every stream takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What one path answers to GET.

    ``answers`` maps media types to the schemas of their bodies, "" for plain text. ``refusals`` are the
    errors that a client can meet here beside those of every path. ``guarded``: the web configuration may ask
    for a password and count requests. ``tagged``: answers have an ETag, and 304 is one of them.
    """

    name: str
    summary: str
    answers: Mapping[str, str]
    words: str = ""
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    refusals: tuple[int, ...] = ()
    guarded: bool = True
    tagged: bool = True


Operations = Mapping[str, Operation]


def probe(name: str, summary: str, refusals: tuple[int, ...] = ()) -> Operation:
    """Describe a health check: the kubelet has no password."""
    return Operation(
        name=name, summary=summary, answers={TEXT: ""}, refusals=refusals, guarded=False, tagged=False
    )


def files() -> Operation:
    """Describe the files that pages are made with."""
    return Operation(
        name="file",
        summary="A file that the pages are made with; its name may have folders.",
        answers={"text/css": "", "text/javascript": "", "image/svg+xml": ""},
        refusals=(404,),
    )


def description(about: str, operations: Operations, schemas: Mapping[str, Schema]) -> Schema:
    """Make the document; ``schemas`` are those that the operations refer to, by their names."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "gpuslice-exporter",
            "version": __version__,
            "description": about,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        # Relative to this document, so that it is right behind any proxy.
        "servers": [{"url": "../.."}],
        "paths": {path: {"get": _described(path, operation)} for path, operation in operations.items()},
        "components": {
            "schemas": {
                **schemas,
                "Error": whole({"error": text("What is wrong, as a sentence.")}),
                "Description": {"type": "object"},
            },
            "responses": {f"{status}": _refusal(status) for status in _MEANINGS},
            "securitySchemes": {"password": {"type": "http", "scheme": "basic"}},
        },
    }


def route(document: Callable[[], Schema]) -> web.RouteDef:
    """Make the route that hands out a description, which is made when it is first asked for."""
    written = cache(lambda: json.dumps(document()).encode())

    async def describe(request: web.Request) -> web.Response:
        return await reply(request, written(), f"{JSON}; charset=utf-8")

    return web.get(PATH, describe)


def _refusal(status: int) -> Schema:
    kinds = {kind: {"schema": {"type": "string"}} for kind in (TEXT, HTML)}
    headers = {
        name: {"schema": {"type": "string"}, **header} for name, header in _HEADERS.get(status, {}).items()
    }
    return {
        "description": _MEANINGS[status],
        **({"headers": headers} if headers else {}),
        "content": {**kinds, JSON: {"schema": reference("Error")}},
    }


def _described(path: str, operation: Operation) -> Schema:
    content = {
        kind: {"schema": reference(schema) if schema else {"type": "string"}}
        for kind, schema in operation.answers.items()
    }
    known = {"304": {"description": "The client has the answer already."}} if operation.tagged else {}
    refusals = sorted({*_ALWAYS, *(_GUARDED if operation.guarded else ()), *operation.refusals})
    return {
        "operationId": operation.name,
        "summary": operation.summary,
        **({"description": operation.words} if operation.words else {}),
        # Without passwords in the web configuration nobody is asked for one.
        **({"security": [{}, {"password": []}]} if operation.guarded else {}),
        "parameters": list(_parameters(path, operation)),
        "responses": {
            "200": {"description": "The answer.", "content": content},
            **known,
            **{f"{status}": {"$ref": f"#/components/responses/{status}"} for status in refusals},
        },
    }


def _parameters(path: str, operation: Operation) -> Iterable[Schema]:
    for name in _IN_PATH.findall(path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    tags = {"If-None-Match": IF_NONE_MATCH} if operation.tagged else {}
    for name, parameter in {**operation.parameters, **tags}.items():
        meaning, schema, place = parameter
        yield {"name": name, "in": place, "description": meaning, "schema": schema}
