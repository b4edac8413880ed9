"""What the tables of a cluster are written of: heads, rows and meters."""

from collections.abc import Sequence
from typing import NamedTuple

from exporter.model import ContainerRef
from exporter.web.pages.picture.bars import Bar
from exporter.web.pages.views.scene import Figure


class Heading(NamedTuple):
    """The head of a column; ``href`` leads to the table in its order, ``sorted`` is how it stands now."""

    name: str
    href: str = ""
    sorted: str = ""
    title: str = ""
    look: str = ""


class Meter(NamedTuple):
    """A bar with its words: a use, and what it is a part of."""

    bars: tuple[Bar, ...]
    used: Figure
    held: Figure
    unit: str


class SlicesHeld(NamedTuple):
    """What is held of slices, or of ``unit``; ``offered`` is None if not reported."""

    held: Figure
    offered: Figure | None
    unit: str


class NodeRow(NamedTuple):
    """A row of the nodes; ``silent`` says why nothing is known."""

    name: str
    href: str
    silent: str
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

    holder: ContainerRef
    href: str
    node: str
    node_href: str
    gpu: str
    uuid: str
    resource: str
    seconds: Figure
    memory_used: Figure
    memory_held: Figure
    compute_held: Figure
    state: str


class SickRow(NamedTuple):
    """A row of the sick GPUs."""

    look: str
    node: str
    href: str
    gpu: str
    uuid: str
    model: str
    reasons: tuple[str, ...]


class Table(NamedTuple):
    """A table: its head, its rows, how many there are besides, and what is not known of them."""

    headings: tuple[Heading, ...]
    rows: Sequence[NodeRow | NamespaceRow | IdleRow | SickRow]
    more: int
    unknown: str = ""
