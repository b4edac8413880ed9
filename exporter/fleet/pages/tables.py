"""The tables of a cluster: nodes, namespaces, idle holders and unhealthy GPUs, as rows for the template."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple
from urllib.parse import quote, urlencode

from exporter.fleet import (
    IDLE,
    NAMESPACES,
    NODES,
    Fleet,
    IdleHolder,
    Namespace,
    Node,
    NodeKey,
    chosen,
    in_order,
)
from exporter.fleet.amounts import Amount, Share, is_alone, named, shown_units, size_of, whole
from exporter.fleet.attention import DETAILS
from exporter.fleet.pages.rows import (
    Heading,
    IdleRow,
    Meter,
    NamespaceRow,
    NodeRow,
    SickRow,
    SlicesHeld,
    Table,
)
from exporter.fleet.rendering import age_words, gpus
from exporter.fleet.targets import NodeLinks
from exporter.model import ContainerRef
from exporter.web.kit.elements import Bar, BarPart, Figure, bar, figure_of
from exporter.web.kit.markup import holder_path
from exporter.wording import TIMES, duration, gibibytes

SHOWN = {"nodes": 250, "namespaces": 50, "idle": 50}
"""The maximum number of rows of each table; the JSON has all nodes and namespaces."""

_HELD_NOT_USED = "held but not used, summed over holders"
_UNMEASURED = "not measured there"
QUERY_FAILED = "the query for this failed"
"""The reason shown for a value that needs a failed query."""


class Orders(NamedTuple):
    """The order of each table, as in the URL; "" is the default."""

    nodes: str = ""
    namespaces: str = ""
    idle: str = ""

    def href(self, table: str, order: str) -> str:
        """Return the URL of this page with one table in another order."""
        query = {name: value for name, value in (self._asdict() | {table: order}).items() if value}
        return f"?{urlencode(query)}#{table}"


class Places:
    """The URLs of the pages of nodes, GPUs and holders; "" if the node is not known."""

    def __init__(self, nodes: Iterable[Node], links: NodeLinks) -> None:
        # Keys of nodes are without a cluster if there is one; other readers do not know that.
        self._urls: Mapping[NodeKey, str] = {
            key: links.of(node.key, node.target)
            for node in nodes
            for key in (node.key, node.key._replace(cluster=node.target.cluster))
        }

    def node(self, key: NodeKey) -> str:
        """Return the URL of a node's page."""
        return self._urls.get(key, "")

    def gpu(self, key: NodeKey, uuid: str) -> str:
        """Return the URL of a GPU's page."""
        return f"{self._urls[key]}gpu/{quote(uuid, safe='', errors='replace')}" if key in self._urls else ""

    def holder(self, key: NodeKey, holder: ContainerRef) -> str:
        """Return the URL of the page of a container on a node."""
        return f"{self._urls[key]}{holder_path(holder)}" if key in self._urls else ""


def node_table(fleet: Fleet, places: Places, orders: Orders) -> Table:
    """Return the table of nodes."""
    head = partial(_heading, "nodes", orders, chosen(NODES, orders.nodes))
    headings = (
        head("Node", "name"),
        head("GPUs", "gpus", look="end"),
        head("Slices held"),
        head("Memory used / held"),
        head("Compute used / held"),
        head("Unused memory", "memory", title=_HELD_NOT_USED, look="end"),
        head("Unused compute", "waste", title=_HELD_NOT_USED, look="end"),
        head("Data", look="end"),
    )
    rows = [_node(node, places) for node in in_order(fleet.nodes, NODES, orders.nodes)[: SHOWN["nodes"]]]
    return Table(headings, rows, len(fleet.nodes) - len(rows))


def namespace_table(fleet: Fleet, orders: Orders) -> Table:
    """Return the table of namespaces."""
    head = partial(_heading, "namespaces", orders, chosen(NAMESPACES, orders.namespaces))
    window = span_words(fleet.window)
    hours = f"GPU-hours of the last {window}: used / held"
    headings = (
        head("Namespace", "name"),
        head("Holders", look="end"),
        head("Memory used / held"),
        head("Unused memory", "memory", title=_HELD_NOT_USED, look="end"),
        head("Compute used / held"),
        head("Unused compute", "waste", title=_HELD_NOT_USED, look="end"),
        head(f"GPU-hours used / held, {window}", "hours", title=hours, look="end"),
    )
    namespaces = in_order(fleet.namespaces or (), NAMESPACES, orders.namespaces)
    rows = [_namespace(namespace) for namespace in namespaces[: SHOWN["namespaces"]]]
    unknown = f"{'Other namespaces' if namespaces else 'Namespaces'} that hold GPUs are not known."
    if fleet.all_namespaces:
        unknown = ""
    elif fleet.namespaces is None:
        unknown = "Namespaces that hold GPUs could not be queried."
    return Table(headings, rows, len(namespaces) - len(rows), unknown)


def idle_table(fleet: Fleet, places: Places, orders: Orders) -> Table:
    """Return the table of idle holders."""
    head = partial(_heading, "idle", orders, chosen(IDLE, orders.idle))
    headings = (
        head("Namespace / pod"),
        head("Idle for", "longest"),
        head("Node"),
        head("GPU", look="end"),
        head("Slice"),
        head("Memory used / held", "memory", look="end"),
        head("Compute held", "compute", look="end"),
    )
    refused = not {name for name, _ in fleet.problems}.isdisjoint(DETAILS)
    why = QUERY_FAILED if refused else _UNMEASURED
    holders = in_order(fleet.idle or (), IDLE, orders.idle)[: SHOWN["idle"]]
    rows = [_idle(holder, places, why) for holder in holders]
    more = max(int(fleet.idle_holders.total) - len(rows), 0)
    # An empty table says itself that it has those only whose compute is measured.
    none = not rows and fleet.idle_totals.holders == 0
    return Table(headings, rows, more, "" if none else fleet.idle_unlisted)


def sick_table(fleet: Fleet, places: Places) -> Table:
    """Return the table of unhealthy GPUs."""
    headings = tuple(Heading(name) for name in ("Node", "GPU", "Model", "Why"))
    more = "Other unhealthy" if fleet.sick else "Unhealthy"
    unknown = "" if fleet.all_sick else f"{more} GPUs are not known."
    rows = [SickRow(gpu, places.gpu(gpu.node, gpu.uuid)) for gpu in fleet.sick]
    return Table(headings, rows, 0, unknown)


def _heading(  # noqa: PLR0913 - the first three are those of the table
    table: str, orders: Orders, current: str, name: str, order: str = "", *, title: str = "", look: str = ""
) -> Heading:
    if not order:
        return Heading(name, title=title, look=look)
    direction = "ascending" if order == "name" else "descending"
    return Heading(name, orders.href(table, order), direction if order == current else "", title, look)


def _node(node: Node, places: Places) -> NodeRow:
    models = ", ".join(f"{count} {TIMES} {model or 'unknown model'}" for model, count in node.models or ())
    return NodeRow(
        name=str(node.key),
        href=places.node(node.key),
        silent=f"not answering for {age_words(node)}: {node.silent}" if node.silent else "",
        gpus=amount(node.gpus, whole),
        models=models,
        note="driver released" if node.released else "",
        slices=tuple(
            SlicesHeld(amount(part.held, whole), None if is_alone(part) else amount(part.size, whole), name)
            for name, part in named(shown_units(node.slices, node.units))
        ),
        memory=_of_all(node.memory, node.memory_total, gibibytes, "GiB"),
        compute=_of_all(node.compute, node.gpus, gpus, "GPU"),
        wasted=(amount(node.memory.wasted, gibibytes), amount(node.compute.wasted, gpus)),
        age=f"{age_words(node)} ago",
    )


def _namespace(namespace: Namespace) -> NamespaceRow:
    return NamespaceRow(
        name=namespace.name,
        holders=amount(namespace.holder_count, whole),
        memory=_of_held(namespace.memory, gibibytes, "GiB"),
        wasted_memory=amount(namespace.memory.wasted, gibibytes),
        compute=_of_held(namespace.compute, gpus, "GPU"),
        wasted_compute=amount(namespace.compute.wasted, gpus),
        hours=(amount(namespace.hours.used, gpus), amount(namespace.hours.held, gpus)),
    )


def _idle(idle: IdleHolder, places: Places, why: str) -> IdleRow:
    return IdleRow(
        idle=idle,
        href=places.holder(idle.node, idle.holder),
        node_href=places.node(idle.node),
        seconds=figure_of(idle.seconds, duration, QUERY_FAILED),
        memory_used=figure_of(idle.memory_used, gibibytes, why),
        memory_held=figure_of(idle.memory_held, gibibytes, why),
        compute_held=figure_of(idle.compute_held, gpus, why),
        state="idle-memory" if idle.memory_used else "idle",
    )


def span_words(seconds: float) -> str:
    """Return the length of a window in one unit."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def amount(value: Amount, write: Callable[[float], str]) -> Figure:
    """Return an amount, with the reason if it is unknown."""
    why = QUERY_FAILED if value.refused else _UNMEASURED
    return Figure(value.text(write), why if value.value is None else "")


def _of_all(share: Share, total: Amount, write: Callable[[float], str], unit: str) -> Meter:
    """Return the meter of what is held and what is used of the total."""
    total = size_of(total, share.held, share.used)
    bars = tuple(
        size_bar(f"{name} of {total.text(write)} {unit}", name, part, total.value)
        for name, part in (("held", share.held), ("used", share.used))
    )
    return Meter(bars, amount(share.used, write), amount(share.held, write), unit)


def _of_held(share: Share, write: Callable[[float], str], unit: str) -> Meter:
    """Return the meter of used / held; without a bar if nothing is held."""
    held = share.held.value
    bars = (size_bar("used of what is held", "used", share.used, held),) if held else ()
    return Meter(bars, amount(share.used, write), amount(share.held, write), unit)


def size_bar(text: str, look: str, size: Amount, track: float | None) -> Bar:
    """Return the bar of an amount on a track; unknown parts are hatched."""
    parts = [BarPart(look, size.value or 0, text)]
    return bar(text, parts, track, known=not size.missing)
