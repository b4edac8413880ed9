"""Which page somebody looks at."""

from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote

from exporter.web.query import Query


@dataclass(frozen=True, slots=True)
class Place:
    """A page: its kind, what it is of (the uuid of a GPU; namespace, pod and container), and its query."""

    kind: Literal["node", "gpu", "holder", "doctor"] = "node"
    names: tuple[str, ...] = ()
    query: Query = field(default_factory=Query)

    @property
    def path(self) -> str:
        """The way from the page of the node to this one."""
        parts = () if self.kind == "node" else (self.kind, *self.names)
        return "/".join(quote(part, safe="") for part in parts)

    @property
    def root(self) -> str:
        """The way from this page to that of the node, relative, so that any sub-path will do."""
        return "../" * len(self.names)
