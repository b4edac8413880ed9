"""What a request asks of a node: a page, or history."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias
from urllib.parse import quote, urlencode

from aiohttp import web
from multidict import MultiMapping

from exporter.history import FIELDS, Ask, Wanted
from exporter.history.plan import span_seconds
from exporter.web.kit.parameters import given_once

LONGEST = 200
"""More characters of a parameter than this are not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """The query of a page's URL; "" and () are the defaults."""

    text: str = ""  # words of the filter
    namespace: str = ""
    gpu: str = ""  # number of the GPU
    state: str = ""
    sort: str = ""  # key of a column, after a minus for the largest first
    columns: tuple[str, ...] = ()  # keys of the columns shown
    span: str = ""  # range of the timelines, such as ``1h``

    @property
    def filters(self) -> bool:
        """Whether a filter is set."""
        return bool(self.text or self.namespace or self.gpu or self.state)

    @property
    def url(self) -> str:
        """The query as a relative URL, normalized: defaults are left out."""
        pairs = [(name, getattr(self, attribute)) for name, attribute in _ATTRIBUTES.items()]
        written = [(name, ",".join(value) if name == "columns" else value) for name, value in pairs if value]
        return f"?{urlencode(written, safe=':,', errors='replace')}"


# The parameters of a page's URL, with their attributes of Query.
_ATTRIBUTES = {
    "q": "text",
    "namespace": "namespace",
    "gpu": "gpu",
    "state": "state",
    "sort": "sort",
    "columns": "columns",
    "range": "span",
}


def asked_query(parameters: MultiMapping[str]) -> Query:
    """Return the query of a page's URL.

    Unknown parameters are ignored, so that links from elsewhere still work, and so are empty ones, because
    forms send those too. The page itself reports words that it does not know. Raises HTTPBadRequest if a
    parameter is repeated, except ``columns``, which a form repeats, or if ``range`` is invalid.
    """
    given = {name: given_once(parameters, name) or "" for name in _ATTRIBUTES if name != "columns"}
    try:
        span_of(given["range"] or None)
    except BadValueError:
        raise web.HTTPBadRequest(text=f"The range must be {SPANS}.") from None
    texts = {_ATTRIBUTES[name]: value[:LONGEST].strip() for name, value in given.items()}
    columns: list[str] = []
    for value in parameters.getall("columns", []):
        columns += filter(None, value[:LONGEST].split(","))
    return Query(**texts, columns=tuple(dict.fromkeys(columns))[:LONGEST])


Kind: TypeAlias = Literal["node", "gpu", "holder", "doctor"]
PATHS: Mapping[Kind, str] = {
    "node": "",
    "gpu": "gpu/{uuid}",
    "holder": "holder/{namespace}/{pod}/{container:[^/]*}",
    "doctor": "doctor",
}
"""The path of each kind of page below the node page, as a pattern of aiohttp's router."""


@dataclass(frozen=True, slots=True)
class Place:
    """A page."""

    kind: Kind = "node"
    names: tuple[str, ...] = ()  # its subject: the uuid of a GPU; namespace, pod and container of a holder
    query: Query = field(default_factory=Query)

    @property
    def path(self) -> str:
        """The path from the node page to this one."""
        parts = () if self.kind == "node" else (self.kind, *self.names)
        return "/".join(quote(part, safe="") for part in parts)

    @property
    def root(self) -> str:
        """The relative path from this page to the node page, independent of the prefix."""
        return "../" * len(self.names)


def requested_place(kind: Kind, request: web.Request) -> Place:
    """Return the page of a request to a route of ``PATHS``; raises HTTPBadRequest as ``asked_query`` does."""
    return Place(kind, tuple(request.match_info.values()), asked_query(request.query))


DEFAULT_SPAN = "1h"
DEFAULT_POINTS = 240
MOST_POINTS = 1440
SPANS = "a duration such as 5m, 1h or 6h, at least 10s"
SPAN_PATTERN = "([1-9][0-9]{1,5}s|[1-9][0-9]{0,5}[mhd])"
"""Allowed ranges as a regular expression, also for JSON Schema."""
LATEST = 253402300800
"""Unix time of the year 10000."""
LONGEST_NAMES = {"uuid": 100, "namespace": 63, "pod": 253, "container": 63}
"""Maximum lengths of names: limits of Kubernetes; UUIDs of the driver are shorter than theirs."""
_SHORTEST = 10.0
# Non-negative numbers as in JSON.
_NUMBER = re.compile(r"[0-9]{1,400}(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,4})?")


class BadValueError(Exception):
    """A parameter is invalid; the message has its name and the allowed values."""


def asked_span(parameters: MultiMapping[str]) -> float:
    """Return the parameter ``range`` in seconds; raises BadValueError."""
    return span_of(_once(parameters, "range"))


def span_of(text: str | None) -> float:
    """Return a range in seconds, the default for None; raises BadValueError."""
    seconds = span_seconds(DEFAULT_SPAN if text is None else text)
    if seconds is None or seconds < _SHORTEST:
        raise BadValueError(f"range: write {SPANS}")
    return seconds


def read_ask(parameters: MultiMapping[str]) -> Ask:
    """Return the request of all parameters; raises BadValueError."""
    return Ask(
        span=asked_span(parameters),
        end=_end(_once(parameters, "end")),
        points=_points(_once(parameters, "points")),
        wanted=Wanted(
            levels=_levels(parameters.getall("level", [])),
            uuid=_name(parameters, "uuid"),
            holder=_holder(parameters),
        ),
    )


def _once(parameters: MultiMapping[str], name: str) -> str | None:
    values = parameters.getall(name, [])
    if len(values) > 1:
        raise BadValueError(f"{name}: write it once")
    return values[0] if values else None


def _end(text: str | None) -> float | None:
    if text is None:
        return None
    end = float(text) if _NUMBER.fullmatch(text) else -1.0
    if not 0 <= end <= LATEST:
        raise BadValueError("end: write a Unix time in seconds, such as 1767225600")
    return end


def _points(text: str | None) -> int:
    if text is None:
        return DEFAULT_POINTS
    if not re.fullmatch("[0-9]{1,4}", text) or not 1 <= int(text) <= MOST_POINTS:
        raise BadValueError(f"points: write a whole number from 1 to {MOST_POINTS}")
    return int(text)


def _levels(names: list[str]) -> frozenset[str]:
    levels = frozenset(names)
    if not FIELDS.keys() >= levels or len(names) > len(levels):
        raise BadValueError(f"level: write {', '.join(FIELDS)}, each at most once")
    return levels


def _name(parameters: MultiMapping[str], name: str) -> str:
    """Return a name, "" if it is absent; raises BadValueError."""
    text = _once(parameters, name)
    if text is not None and not 1 <= len(text) <= LONGEST_NAMES[name]:
        raise BadValueError(f"{name}: write 1 to {LONGEST_NAMES[name]} characters")
    return text or ""


def _holder(parameters: MultiMapping[str]) -> tuple[str, str, str] | None:
    namespace, pod, container = (_name(parameters, name) for name in ("namespace", "pod", "container"))
    if bool(namespace) != bool(pod):
        missing = "pod" if namespace else "namespace"
        raise BadValueError(f"{missing}: write it too; a holder needs namespace and pod")
    if container and not pod:
        raise BadValueError("container: write namespace and pod too")
    return (namespace, pod, container) if pod else None
