"""The tables of a cluster: nodes, namespaces, idle holders and sick GPUs, as rows that a template writes."""

from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import quote, urlencode

from exporter.fleet.amounts import Amount, Share, Units, is_alone, named, told, whole
from exporter.fleet.attention import DETAILS
from exporter.fleet.cluster_model import (
    IDLE,
    NAMESPACES,
    NODES,
    Fleet,
    IdleHolder,
    Namespace,
    Node,
    NodeKey,
    SickGpu,
    chosen,
    idle_in,
    namespaces_in,
    nodes_in,
)
from exporter.fleet.rendering import age_words, gpus
from exporter.fleet.targets import NodeLinks
from exporter.formats.wording import TIMES, UNKNOWN, duration, gibibytes
from exporter.web.cluster.fleet_rows import (
    Heading,
    IdleRow,
    Meter,
    NamespaceRow,
    NodeRow,
    SickRow,
    SlicesHeld,
    Table,
)
from exporter.web.pages.picture.bars import Bar, Part, bar
from exporter.web.pages.views.scene import Figure

SHOWN = {"nodes": 250, "namespaces": 50, "idle": 50}
"""How many rows each table has on the page; all nodes and namespaces are in the JSON."""

_UNMEASURED = "not measured there"
UNASKED = "the query for this failed"
"""Why a figure is not known that stands on a question which Prometheus refused."""


class Orders(NamedTuple):
    """The orders of the tables, as they stand in the URL; "" is the one of its own."""

    nodes: str = ""
    namespaces: str = ""
    idle: str = ""

    def href(self, table: str, order: str) -> str:
        """Return the URL of this page with one table in another order."""
        asked = {name: value for name, value in (self._asdict() | {table: order}).items() if value}
        return f"?{urlencode(asked)}#{table}"


class Places:
    """Where the pages of nodes are, by node."""

    def __init__(self, fleet: Fleet, links: NodeLinks) -> None:
        self._urls: Mapping[NodeKey, str] = {
            node.key: links.of(node.key, node.target) for node in fleet.nodes
        }

    def node(self, key: NodeKey) -> str:
        """Return the URL of a node's page."""
        return self._urls.get(key, "")

    def gpu(self, key: NodeKey, uuid: str) -> str:
        """Return the URL of a GPU's page."""
        return f"{self._urls[key]}gpu/{quote(uuid, safe='', errors='replace')}" if key in self._urls else ""


def node_table(fleet: Fleet, places: Places, orders: Orders) -> Table:
    """Describe the nodes."""
    heads = _Heads("nodes", orders, chosen(NODES, orders.nodes))
    rows = nodes_in(fleet.nodes, orders.nodes)
    headings = (
        heads.made("Node", "name"),
        heads.made("GPUs", "gpus", look="end"),
        heads.made("Slices held"),
        heads.made("Memory used / held"),
        heads.made("Compute used / held"),
        heads.made("Unused memory", "memory", "held but not used, summed over holders", "end"),
        heads.made("Unused compute", "waste", "held but not used, summed over holders", "end"),
        heads.made("Data", look="end"),
    )
    made = [_node(node, places) for node in rows[: SHOWN["nodes"]]]
    return Table(headings, made, max(len(rows) - len(made), 0))


def namespace_table(fleet: Fleet, orders: Orders) -> Table:
    """Describe the namespaces."""
    heads = _Heads("namespaces", orders, chosen(NAMESPACES, orders.namespaces))
    unknown = "Namespaces that hold GPUs could not be queried." if fleet.namespaces is None else ""
    rows = namespaces_in(fleet.namespaces or (), orders.namespaces)
    window = span_words(fleet.window)
    title = f"GPU-hours of the last {window}: used / held"
    headings = (
        heads.made("Namespace", "name"),
        heads.made("Holders", look="end"),
        heads.made("Memory used / held"),
        heads.made("Unused memory", "memory", "held but not used, summed over holders", "end"),
        heads.made("Compute used / held"),
        heads.made("Unused compute", "waste", "held but not used, summed over holders", "end"),
        heads.made(f"GPU-hours used / held, {window}", "hours", title, "end"),
    )
    made = [_namespace(each) for each in rows[: SHOWN["namespaces"]]]
    return Table(headings, made, max(len(rows) - len(made), 0), unknown)


def idle_table(fleet: Fleet, places: Places, orders: Orders) -> Table:
    """Describe the idle holders."""
    heads = _Heads("idle", orders, chosen(IDLE, orders.idle))
    headings = (
        heads.made("Namespace / pod"),
        heads.made("Idle for", "longest"),
        heads.made("Node"),
        heads.made("GPU", look="end"),
        heads.made("Slice"),
        heads.made("Memory used / held", "memory", look="end"),
        heads.made("Compute held", "compute", look="end"),
    )
    refused = not {name for name, _ in fleet.problems}.isdisjoint(DETAILS)
    why = UNASKED if refused else _UNMEASURED
    made = [_idle(each, places, why) for each in idle_in(fleet.idle or (), orders.idle)[: SHOWN["idle"]]]
    return Table(headings, made, max((fleet.idle_totals.holders or 0) - len(made), 0), _unknown_idle(fleet))


def _unknown_idle(fleet: Fleet) -> str:
    if fleet.idle is None:
        return "Idle holders could not be queried."
    if fleet.idle_totals.holders is None:
        return f"The number of {'other ' if fleet.idle else ''}idle holders could not be queried."
    return ""


def sick_table(fleet: Fleet, places: Places) -> Table:
    """Describe the sick GPUs."""
    headings = tuple(Heading(name) for name in ("Node", "GPU", "Model", "Why"))
    more = "Other unhealthy" if fleet.sick else "Unhealthy"
    unknown = "" if fleet.all_sick else f"{more} GPUs are not known."
    return Table(headings, [_sick(gpu, places) for gpu in fleet.sick], 0, unknown)


class _Heads:
    def __init__(self, table: str, orders: Orders, order: str) -> None:
        self._table = table
        self._orders = orders
        self._order = order

    def made(self, name: str, order: str = "", title: str = "", look: str = "") -> Heading:
        if not order:
            return Heading(name, title=title, look=look)
        direction = "ascending" if order == "name" else "descending"
        stands = direction if order == self._order else ""
        return Heading(name, self._orders.href(self._table, order), stands, title, look)


def _node(node: Node, places: Places) -> NodeRow:
    models = ", ".join(f"{count} {TIMES} {model or 'unknown model'}" for model, count in node.models or ())
    return NodeRow(
        name=str(node.key),
        href=places.node(node.key),
        silent=f"not answering for {age_words(node)}: {node.silent}" if node.silent else "",
        gpus=amount(node.gpus, whole),
        models=models,
        note="driver released" if node.released else "",
        slices=tuple(_slices(name, part) for name, part in named(told(node.slices, node.units))),
        memory=_of_all(node.memory, node.memory_total, gibibytes, "GiB"),
        compute=_of_all(node.compute, node.gpus, gpus, "GPU"),
        wasted=(amount(node.memory.wasted, gibibytes), amount(node.compute.wasted, gpus)),
        age=f"{age_words(node)} ago",
    )


def _slices(name: str, part: Units) -> SlicesHeld:
    offered = None if is_alone(part) else amount(part.offered, whole)
    return SlicesHeld(amount(part.held, whole), offered, name)


def _namespace(each: Namespace) -> NamespaceRow:
    return NamespaceRow(
        name=each.name,
        holders=_figure(each.holders, whole, UNASKED),
        memory=_of_held(each.memory, gibibytes, "GiB"),
        wasted_memory=amount(each.memory.wasted, gibibytes),
        compute=_of_held(each.compute, gpus, "GPU"),
        wasted_compute=amount(each.compute.wasted, gpus),
        hours=(amount(each.hours.used, gpus), amount(each.hours.held, gpus)),
    )


def _idle(each: IdleHolder, places: Places, why: str) -> IdleRow:
    holder = each.holder
    path = "/".join(
        quote(part, safe="", errors="replace") for part in (holder.namespace, holder.pod, holder.container)
    )
    page = places.node(each.node)
    return IdleRow(
        holder=holder,
        href=f"{page}holder/{path}" if page else "",
        node=str(each.node),
        node_href=page,
        gpu=each.gpu or UNKNOWN,
        uuid=each.mig_uuid or each.uuid,
        resource=each.resource or UNKNOWN,
        seconds=_figure(each.seconds, duration, UNASKED),
        memory_used=_figure(each.memory_used, gibibytes, why),
        memory_held=_figure(each.memory_held, gibibytes, why),
        compute_held=_figure(each.compute_held, gpus, why),
        state="idle-memory" if each.memory_used else "idle",
    )


def _sick(gpu: SickGpu, places: Places) -> SickRow:
    return SickRow(
        look=gpu.severity,
        node=str(gpu.node),
        href=places.gpu(gpu.node, gpu.uuid),
        gpu=gpu.gpu or UNKNOWN,
        uuid=gpu.uuid,
        model=gpu.model or UNKNOWN,
        reasons=gpu.reasons,
    )


def span_words(seconds: float) -> str:
    """Return the length of a window in one unit."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def amount(value: Amount, write: Callable[[float], str]) -> Figure:
    """Return an amount, with the reason if it is unknown."""
    why = UNASKED if value.refused else _UNMEASURED
    return Figure(value.text(write), why if value.value is None else "")


def _figure(value: float | None, write: Callable[[float], str], why: str) -> Figure:
    return Figure(UNKNOWN, why) if value is None else Figure(write(value))


def _of_all(share: Share, all_of_it: Amount, write: Callable[[float], str], unit: str) -> Meter:
    """Return the meter of what is held and what is used of the total."""
    bars = tuple(
        size_bar(f"{name} of {all_of_it.text(write)} {unit}", name, part, all_of_it.value)
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
    parts = [Part(look, size.value or 0, text)]
    return bar(text, parts, track, known=not size.missing)
