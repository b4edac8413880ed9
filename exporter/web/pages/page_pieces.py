"""A page in pieces, so that an open page gets only the changed ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """One page at one moment."""

    layout: str  # the template around the pieces
    title: str  # of the window
    pieces: Mapping[str, str]  # element ids to HTML
    lists: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # ids of children, in order
    facts: Mapping[str, Any] = field(default_factory=dict)  # other, constant variables of the layout


class Opened(NamedTuple):
    """What an open page needs in order to stay up to date."""

    live: str  # address of its stream, relative to the page
    tag: str  # name of the snapshot shown
    timestamp: float  # Unix time of that snapshot
    now: float  # Unix time of the server
    interval: float  # seconds between snapshots
    version: str  # of the exporter


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
