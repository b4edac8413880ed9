"""The requested page: its name, filter, order, columns and range."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias
from urllib.parse import quote, urlencode

from aiohttp import web
from multidict import MultiMapping

from exporter.web.http.parameters import given_once
from exporter.web.timelines.query import SPANS, BadValueError, span_of

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
        pairs = (
            ("q", self.text),
            ("namespace", self.namespace),
            ("gpu", self.gpu),
            ("state", self.state),
            ("sort", self.sort),
            ("columns", ",".join(self.columns)),
            ("range", self.span),
        )
        return f"?{urlencode([pair for pair in pairs if pair[1]], safe=':,', errors='replace')}"


_ONCE = ("q", "namespace", "gpu", "state", "sort")


def asked_query(parameters: MultiMapping[str]) -> Query:
    """Return the query of a page's URL.

    Empty parameters are ignored, because forms send those too, and the page itself reports words
    that it does not know. Raises HTTPBadRequest if one is repeated, except ``columns``, or if ``range``
    is invalid.
    """
    for name in _ONCE:
        given_once(parameters, name)
    span = given_once(parameters, "range")
    try:
        span_of(span or None)
    except BadValueError:
        raise web.HTTPBadRequest(text=f"The range must be {SPANS}.") from None
    return read_query(parameters)


def read_query(parameters: Mapping[str, str]) -> Query:
    """Return the query of a URL. Unknown parameters are ignored, so that links from elsewhere still work.

    ``columns`` may be repeated, as a form sends it; of others the first one counts.
    """
    first: dict[str, str] = {}
    columns: list[str] = []
    for name, value in parameters.items():
        if name == "columns":
            columns += filter(None, value[:LONGEST].split(","))
        else:
            first.setdefault(name, value[:LONGEST].strip())
    return Query(
        text=first.get("q", ""),
        namespace=first.get("namespace", ""),
        gpu=first.get("gpu", ""),
        state=first.get("state", ""),
        sort=first.get("sort", ""),
        columns=tuple(dict.fromkeys(columns))[:LONGEST],
        span=first.get("range", ""),
    )


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
