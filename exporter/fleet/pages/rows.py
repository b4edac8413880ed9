"""The records of a cluster's tables: headings, rows and meters."""

from collections.abc import Sequence
from typing import NamedTuple

from exporter.fleet import IdleHolder, SickGpu
from exporter.web.kit.elements import Bar, Figure


class Heading(NamedTuple):
    """The head of a column."""

    name: str
    href: str = ""  # sorts the table by it, "" if it cannot be sorted
    sorted: str = ""  # its ``aria-sort``, "" if the table is in another order
    title: str = ""
    look: str = ""


class Meter(NamedTuple):
    """Used and held amounts with their bars."""

    bars: tuple[Bar, ...]
    used: Figure
    held: Figure
    unit: str


class SlicesHeld(NamedTuple):
    """The number of slices held."""

    held: Figure
    offered: Figure | None  # None if not reported
    unit: str  # "" for slices


class NodeRow(NamedTuple):
    """A row of the nodes."""

    name: str
    href: str
    silent: str  # why there is no current data, "" if there is
    gpus: Figure
    models: str
    note: str
    slices: tuple[SlicesHeld, ...]
    memory: Meter
    compute: Meter
    wasted: tuple[Figure, Figure]
    age: str


class NamespaceRow(NamedTuple):
    """A row of the namespaces."""

    name: str
    holders: Figure
    memory: Meter
    wasted_memory: Figure
    compute: Meter
    wasted_compute: Figure
    hours: tuple[Figure, Figure]


class IdleRow(NamedTuple):
    """A row of the idle holders."""

    idle: IdleHolder
    href: str
    node_href: str
    seconds: Figure
    memory_used: Figure
    memory_held: Figure
    compute_held: Figure
    state: str


class SickRow(NamedTuple):
    """A row of the unhealthy GPUs."""

    gpu: SickGpu
    href: str


class AdviceRow(NamedTuple):
    """A row of the advice."""

    space: str  # namespace with a slash, after its cluster if there are several
    name: str
    container: str
    href: str  # of the page of a holder that runs, or of the GPU on which several take turns
    now: str
    verdict: str
    notes: tuple[str, ...]
    freed: Figure
    sure: str  # confidence, "" without advice
    seen: tuple[str, ...]  # for how long, and the measured share
    why: str  # with what it goes by


class Table(NamedTuple):
    """A table."""

    headings: tuple[Heading, ...]
    rows: Sequence[NodeRow | NamespaceRow | IdleRow | SickRow | AdviceRow]
    more: int  # number of further rows that are not shown
    unknown: str = ""  # what is unknown about them
