"""A page in pieces, so that an open page gets only the changed ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """One page as it looks at one moment.

    ``layout`` is the template that the pieces stand in, and ``title`` that of the window. ``pieces`` maps ids
    of elements to their HTML, from their opening to their closing tag. ``lists`` maps ids of elements whose
    children come and go to the ids of these children, in their order; the children are among the pieces.
    ``facts`` is what the layout is filled with besides, and what stays as it is while the page is open.
    """

    layout: str
    title: str
    pieces: Mapping[str, str]
    lists: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


class Opened(NamedTuple):
    """What a page has to know in a browser to stay up to date.

    ``live`` is the address of its stream, relative to the page. ``tag`` names the snapshot that it shows, and
    ``timestamp`` is that snapshot's Unix time; ``now`` is the server's clock. A new one comes every
    ``interval`` seconds. ``version`` is that of what made the page.
    """

    live: str
    tag: str
    timestamp: float
    now: float
    interval: float
    version: str


@dataclass(frozen=True, slots=True)
class Change:
    """The pieces that replace those of an open page; children that are in no list are removed."""

    title: str
    pieces: Mapping[str, str]
    lists: Mapping[str, tuple[str, ...]]


def change(old: Drawing | None, new: Drawing) -> Change:
    """Return what is new; everything if there is no old drawing."""
    if old is None:
        return Change(new.title, new.pieces, new.lists)
    pieces = {name: html for name, html in new.pieces.items() if old.pieces.get(name) != html}
    lists = {name: children for name, children in new.lists.items() if old.lists.get(name) != children}
    return Change(new.title, pieces, lists)
