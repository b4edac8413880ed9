"""Descriptions of routes for programs as OpenAPI 3.1: their parameters, and the statuses they can return.

Format: https://spec.openapis.org/oas/v3.1.0
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cache, partial
from typing import Any, NamedTuple, TypeAlias

from aiohttp import web

from exporter import __version__
from exporter.web.kit.http.responses import CONTENT_TYPES, reply
from exporter.web.kit.parameters import require_json

Schema: TypeAlias = dict[str, Any]
JSON, TEXT, CSV, HTML = "application/json", "text/plain", "text/csv", "text/html"
PATH = "/api/v1/openapi.json"
# Requests may be refused before routing: for their syntax, body, or Expect header.
_ALWAYS = (400, 413, 417, 500, 505)
_GUARDED = (401, 429)
_MEANINGS = {
    400: "The request is invalid; the text has the reason.",
    401: "The web configuration requires a user name and password.",
    404: "There is nothing of that name; the text has the reason.",
    413: "Requests with a body are not allowed.",
    417: "The Expect header is not supported.",
    429: "Too many requests, or passwords that wait to be checked.",
    500: "The response could not be made; the log has the reason.",
    503: "Not available now; the text has the reason.",
    505: "Only HTTP/1.0 and HTTP/1.1 are supported.",
}
_HEADERS: Mapping[int, Mapping[str, Schema]] = {
    401: {"WWW-Authenticate": {"description": "How to log in.", "required": True}},
    429: {"Retry-After": {"description": "Seconds to wait.", "required": True}},
    503: {"Retry-After": {"description": "Seconds to wait, if known."}},
}


def whole(properties: Mapping[str, Schema], meaning: str = "") -> Schema:
    """Return the schema of an object that always has all of these fields."""
    described = {"description": meaning} if meaning else {}
    return {"type": "object", **described, "properties": dict(properties), "required": list(properties)}


def text(meaning: str, *, null: bool = False) -> Schema:
    """Return the schema of a text."""
    return number(meaning, null=null, kind="string")


def number(meaning: str, *, null: bool = False, kind: str = "number") -> Schema:
    """Return the schema of a number."""
    return {"type": [kind, "null"] if null else kind, "description": meaning}


def flag(meaning: str, *, null: bool = False) -> Schema:
    """Return the schema of yes or no."""
    return number(meaning, null=null, kind="boolean")


def choice(options: Iterable[str], meaning: str = "", *, null: bool = False) -> Schema:
    """Return the schema of one of several texts."""
    described = {"description": meaning} if meaning else {}
    return {"enum": [*options, None] if null else list(options), **described}


def listed(items: Schema, meaning: str) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": items, "description": meaning}


def reference(name: str) -> Schema:
    """Return a reference to the schema of this name."""
    return {"$ref": f"#/components/schemas/{name}"}


class Parameter(NamedTuple):
    """A parameter in the query."""

    meaning: str
    schema: Schema


def format_of(formats: Iterable[str]) -> Mapping[str, Parameter]:
    """Return the parameter by which a client chooses one of several formats."""
    return {"format": Parameter("Format of the response; overrides the Accept header.", choice(formats))}


@dataclass(frozen=True, slots=True)
class Operation:
    """GET of one path."""

    name: str
    summary: str
    answers: Mapping[str, str]  # media types to names of schemas, "" for plain text
    _: KW_ONLY
    words: str = ""  # a longer description
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    refusals: tuple[int, ...] = ()  # possible error statuses besides those of every path
    guarded: bool = True  # whether passwords and the rate limit of the web configuration apply
    tagged: bool = True  # whether responses have an ETag, and 304 is possible


Operations = Mapping[str, Operation]
ONLY_JSON = format_of(("json",))
"""The same of a path with one format."""
DESCRIBE = Operation("describe", "This description.", {JSON: "Description"}, parameters=ONLY_JSON)
probe = partial(Operation, answers={TEXT: ""}, guarded=False, tagged=False)
"""Return the description of a health check, which needs no password."""


def description(about: str, operations: Operations, schemas: Mapping[str, Schema]) -> Schema:
    """Return the document; ``schemas`` are those of the operations, by name."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "gpuslice-exporter",
            "version": __version__,
            "description": about,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        # Relative to this document, so that it works behind any proxy.
        "servers": [{"url": "../.."}],
        "paths": {path: {"get": _described(operation)} for path, operation in operations.items()},
        "components": {
            "schemas": {
                **schemas,
                "Error": whole({"error": text("The error, as a sentence.")}),
                "Description": {"type": "object"},
            },
            "responses": {f"{status}": _refusal(status) for status in _MEANINGS},
            "securitySchemes": {"password": {"type": "http", "scheme": "basic"}},
        },
    }


def route(document: Callable[[], Schema]) -> web.RouteDef:
    """Return the route of a description, which is made on the first request."""
    body = cache(lambda: json.dumps(document()).encode())

    async def describe(request: web.Request) -> web.Response:
        require_json(request)
        return await reply(request, body(), CONTENT_TYPES["json"])

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


def _described(operation: Operation) -> Schema:
    content = {
        kind: {"schema": reference(schema) if schema else {"type": "string"}}
        for kind, schema in operation.answers.items()
    }
    not_modified = (
        {"304": {"description": "The client has the response already."}} if operation.tagged else {}
    )
    refusals = sorted({*_ALWAYS, *(_GUARDED if operation.guarded else ()), *operation.refusals})
    return {
        "operationId": operation.name,
        "summary": operation.summary,
        **({"description": operation.words} if operation.words else {}),
        # Two alternatives: passwords are optional in the web configuration.
        **({"security": [{}, {"password": []}]} if operation.guarded else {}),
        "parameters": list(_parameters(operation)),
        "responses": {
            "200": {"description": "The response.", "content": content},
            **not_modified,
            **{f"{status}": {"$ref": f"#/components/responses/{status}"} for status in refusals},
        },
    }


def _parameters(operation: Operation) -> Iterator[Schema]:
    for name, parameter in operation.parameters.items():
        yield _parameter(name, "query", parameter)
    if operation.tagged:
        known = Parameter("ETags of responses that the client has.", {"type": "string"})
        yield _parameter("If-None-Match", "header", known)


def _parameter(name: str, place: str, parameter: Parameter) -> Schema:
    return {"name": name, "in": place, "description": parameter.meaning, "schema": parameter.schema}
