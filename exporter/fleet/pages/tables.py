"""The tables of a cluster: nodes, namespaces, idle holders and unhealthy GPUs, as rows for the template."""

from collections.abc import Callable, Sequence
from typing import NamedTuple
from urllib.parse import urlencode

from exporter.fleet.amounts import Amount, Share, named, shown_units, size_of, whole
from exporter.fleet.model import Fleet, IdleHolder, Namespace, Node, SickGpu, in_order, known_order
from exporter.fleet.pages.links import Links
from exporter.fleet.sick_and_idle import DETAILS
from exporter.fleet.text import age_words, silent_words
from exporter.web.kit.elements import Bar, BarPart, Figure, bar, figure_of
from exporter.wording import TIMES, duration, gibibytes, hundredths

# The reason shown for a value that needs a failed query.
QUERY_FAILED = "the query for this failed"
UNMEASURED = "not measured there"


class Orders(NamedTuple):
    """The order of each table, as in the URL; "" is the default."""

    nodes: str = ""
    namespaces: str = ""
    idle: str = ""
    namespace: tuple[str, ...] = ()  # the namespaces of the rows, () for all

    def href(self, **changed: str | tuple[str, ...]) -> str:
        """Return the link to the page with some of these changed."""
        query = {name: value for name, value in (self._asdict() | changed).items() if value}
        return f"?{urlencode(query, doseq=True, errors='replace')}"


class Heading(NamedTuple):
    """The head of a column."""

    name: str
    order: str = ""  # that the column sorts the table by, "" if it cannot
    title: str = ""
    look: str = ""
    href: str = ""  # sorts the table
    sorted: str = ""  # its ``aria-sort``, "" if the table is in another order


class Table(NamedTuple):
    """A table."""

    headings: tuple[Heading, ...] = ()
    rows: Sequence[object] = ()  # records for the template
    more: int = 0  # number of further rows that are not shown
    unknown: str = ""  # what is unknown about them


class UsedAndHeld(NamedTuple):
    """Used and held amounts with their bars."""

    bars: tuple[Bar, ...]
    used: Figure
    held: Figure
    unit: str


def sortable(table: str, headings: Sequence[Heading], orders: Orders) -> tuple[Heading, ...]:
    """Return the headings with links to the page with this table in their order."""
    current = known_order(table, getattr(orders, table))

    def linked(heading: Heading) -> Heading:
        if not heading.order:
            return heading
        direction = "ascending" if heading.order == "name" else "descending"
        return heading._replace(
            href=f"{orders.href(**{table: heading.order})}#{table}",
            sorted=direction if heading.order == current else "",
        )

    return tuple(map(linked, headings))


def figure(amount: Amount, write: Callable[[float], str]) -> Figure:
    """Return an amount, with the reason if it is unknown."""
    why = QUERY_FAILED if amount.refused else UNMEASURED
    return Figure(amount.text(write), why if amount.value is None else "")


def size_bar(text: str, look: str, size: Amount, track: float | None) -> Bar:
    """Return the bar of an amount on a track; unknown parts are hatched."""
    return bar(text, [BarPart(look, size.value or 0, text)], track, known=not size.missing)


def used_and_held_of_all(
    share: Share, total: Amount, write: Callable[[float], str], unit: str
) -> UsedAndHeld:
    """Return used / held, each with a bar of the total."""
    total = size_of(total, share.held, share.used)
    bars = tuple(
        size_bar(f"{name} of {total.text(write)} {unit}", name, part, total.value)
        for name, part in (("held", share.held), ("used", share.used))
    )
    return UsedAndHeld(bars, figure(share.used, write), figure(share.held, write), unit)


def used_of_held(share: Share, write: Callable[[float], str], unit: str) -> UsedAndHeld:
    """Return used / held with a bar of the used part; without one if nothing is held."""
    held = share.held.value
    bars = (size_bar("used of what is held", "used", share.used, held),) if held else ()
    return UsedAndHeld(bars, figure(share.used, write), figure(share.held, write), unit)


# The maximum number of rows of each table; the JSON has all nodes and namespaces.
MOST_ROWS = {"nodes": 250, "namespaces": 50, "idle": 50}
_HELD_NOT_USED = "held but not used, summed over holders"

_NODE_HEADINGS = (
    Heading("Node", "name"),
    Heading("GPUs", "gpus", look="end"),
    Heading("Slices held"),
    Heading("Memory used / held"),
    Heading("Compute used / held"),
    Heading("Unused memory", "memory", title=_HELD_NOT_USED, look="end"),
    Heading("Unused compute", "waste", title=_HELD_NOT_USED, look="end"),
    Heading("Data", look="end"),
)


class SlicesHeld(NamedTuple):
    """The number of slices held."""

    held: Figure
    offered: Figure | None  # None if not reported
    unit: str  # "" for slices


class NodeRow(NamedTuple):
    """A row of the nodes."""

    node: Node
    href: str
    silent: str  # why there is no current data, "" if there is
    gpus: Figure
    models: str
    slices: tuple[SlicesHeld, ...]
    memory: UsedAndHeld
    compute: UsedAndHeld
    wasted: tuple[Figure, Figure]
    age: str


def node_table(fleet: Fleet, links: Links, orders: Orders) -> Table:
    """Return the table of nodes."""
    nodes = in_order("nodes", fleet.nodes, orders.nodes)[: MOST_ROWS["nodes"]]
    rows = [_node_row(node, links) for node in nodes]
    return Table(sortable("nodes", _NODE_HEADINGS, orders), rows, len(fleet.nodes) - len(rows))


def _node_row(node: Node, links: Links) -> NodeRow:
    return NodeRow(
        node=node,
        href=links.node(node.key),
        silent=silent_words(node) if node.silent else "",
        gpus=figure(node.gpus, whole),
        models=", ".join(f"{count} {TIMES} {model or 'unknown model'}" for model, count in node.models or ()),
        slices=tuple(
            SlicesHeld(figure(part.held, whole), figure(part.size, whole) if part.has_size else None, name)
            for name, part in named(shown_units(node.slices, node.units))
        ),
        memory=used_and_held_of_all(node.memory, node.memory_total, gibibytes, "GiB"),
        compute=used_and_held_of_all(node.compute, node.gpus, hundredths, "GPU"),
        wasted=(figure(node.memory.wasted, gibibytes), figure(node.compute.wasted, hundredths)),
        age=f"{age_words(node)} ago",
    )


class NamespaceRow(NamedTuple):
    """A row of the namespaces."""

    name: str
    href: str  # to the page with this namespace only
    holders: Figure
    memory: UsedAndHeld
    wasted_memory: Figure
    compute: UsedAndHeld
    wasted_compute: Figure
    hours: tuple[Figure, Figure]  # used, held


def namespace_table(fleet: Fleet, orders: Orders) -> Table:
    """Return the table of namespaces."""
    window = _window_words(fleet.window)
    hours = f"GPU-hours of the last {window}: used / held"
    headings = (
        Heading("Namespace", "name"),
        Heading("Holders", look="end"),
        Heading("Memory used / held"),
        Heading("Unused memory", "memory", title=_HELD_NOT_USED, look="end"),
        Heading("Compute used / held"),
        Heading("Unused compute", "waste", title=_HELD_NOT_USED, look="end"),
        Heading(f"GPU-hours used / held, {window}", "hours", title=hours, look="end"),
    )
    namespaces = in_order("namespaces", fleet.namespaces or (), orders.namespaces)
    rows = [_namespace_row(namespace, orders) for namespace in namespaces[: MOST_ROWS["namespaces"]]]
    if fleet.only:
        unknown = fleet.unlisted_namespaces
    elif fleet.all_namespaces:
        unknown = ""
    elif fleet.namespaces is None:
        unknown = "Namespaces that hold GPUs could not be queried."
    else:
        unknown = f"{'Other namespaces' if rows else 'Namespaces'} that hold GPUs are not known."
    return Table(sortable("namespaces", headings, orders), rows, len(namespaces) - len(rows), unknown)


def _namespace_row(namespace: Namespace, orders: Orders) -> NamespaceRow:
    return NamespaceRow(
        name=namespace.name,
        href=orders.href(namespace=namespace.name),
        holders=figure(namespace.holder_count, whole),
        memory=used_of_held(namespace.memory, gibibytes, "GiB"),
        wasted_memory=figure(namespace.memory.wasted, gibibytes),
        compute=used_of_held(namespace.compute, hundredths, "GPU"),
        wasted_compute=figure(namespace.compute.wasted, hundredths),
        hours=(figure(namespace.hours.used, hundredths), figure(namespace.hours.held, hundredths)),
    )


def _window_words(seconds: float) -> str:
    """Return the length of a window in one unit."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


_IDLE_HEADINGS = (
    Heading("Namespace / pod"),
    Heading("Idle for", "longest"),
    Heading("Node"),
    Heading("GPU", look="end"),
    Heading("Slice"),
    Heading("Memory used / held", "memory", look="end"),
    Heading("Compute held", "compute", look="end"),
)


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


def idle_table(fleet: Fleet, links: Links, orders: Orders) -> Table:
    """Return the table of idle holders."""
    refused = any(name in DETAILS for name, _ in fleet.problems)
    why = QUERY_FAILED if refused else UNMEASURED
    holders = in_order("idle", fleet.idle or (), orders.idle)[: MOST_ROWS["idle"]]
    rows = [_idle_row(idle, links, why) for idle in holders]
    more = max(int(fleet.idle_holders.total) - len(rows), 0)
    # An empty table says itself that it has those only whose compute is measured.
    none = not rows and fleet.total.idle_holders.value == 0
    return Table(sortable("idle", _IDLE_HEADINGS, orders), rows, more, "" if none else fleet.idle_unlisted)


def _idle_row(idle: IdleHolder, links: Links, why: str) -> IdleRow:
    return IdleRow(
        idle=idle,
        href=links.holder(idle.node, idle.holder),
        node_href=links.node(idle.node),
        seconds=figure_of(idle.seconds, duration, QUERY_FAILED),
        memory_used=figure_of(idle.memory_used, gibibytes, why),
        memory_held=figure_of(idle.memory_held, gibibytes, why),
        compute_held=figure_of(idle.compute_held, hundredths, why),
        state="idle-memory" if idle.memory_used else "idle",
    )


class SickRow(NamedTuple):
    """A row of the unhealthy GPUs."""

    gpu: SickGpu
    href: str


def sick_table(fleet: Fleet, links: Links) -> Table:
    """Return the table of unhealthy GPUs."""
    headings = (Heading("Node"), Heading("GPU"), Heading("Model"), Heading("Why"))
    rows = [SickRow(gpu, links.gpu(gpu.node, gpu.uuid)) for gpu in fleet.sick]
    more = "Other unhealthy" if fleet.sick else "Unhealthy"
    return Table(headings, rows, unknown="" if fleet.all_sick else f"{more} GPUs are not known.")
