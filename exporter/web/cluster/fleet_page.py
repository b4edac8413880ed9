"""The page of a cluster, made from the last answer."""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from exporter.fleet.amounts import (
    Amount,
    Share,
    Units,
    named,
    shown_units,
    total_amount,
    total_share,
    whole,
    word,
)
from exporter.fleet.cluster_model import Fleet
from exporter.fleet.rendering import gpu_count, gpus, total_slices
from exporter.fleet.targets import NodeLinks
from exporter.fleet.watch import FleetRead
from exporter.formats.wording import UNKNOWN, duration, gibibytes, plural
from exporter.web.cluster.advice_table import advice_table, advice_totals
from exporter.web.cluster.fleet_rows import Table
from exporter.web.cluster.fleet_tables import (
    QUERY_FAILED,
    Orders,
    Places,
    amount,
    idle_table,
    namespace_table,
    node_table,
    sick_table,
    size_bar,
)
from exporter.web.html import Drawing, piece
from exporter.web.pages.picture.bars import Bar
from exporter.web.pages.scene import Figure
from exporter.web.pages.views.totals import Card, Finding

_PIECES = "pieces/fleet.html"
_EMPTY = Table((), (), 0)
_OLD_INTERVALS = 3


class FleetScene(NamedTuple):
    """The cluster as shown on the page."""

    read: FleetRead
    now: float  # Unix time
    links: NodeLinks
    orders: Orders


class Status(NamedTuple):
    """The age of the page's data."""

    text: str
    at: str
    old: bool
    old_after: float = 0.0  # age in seconds from which it is old


class FleetNotice(NamedTuple):
    """A notice on the page."""

    look: str  # ``bad`` or ``note``
    title: str
    text: str


def fleet_drawing(scene: FleetScene) -> Drawing:
    """Return the page of the cluster; without data, why there is none."""
    fleet = scene.read.fleet
    places = Places(fleet.nodes if fleet else (), scene.links)
    tables = _tables(fleet, places, scene.orders) if fleet else {}
    advice = scene.read.advice
    return Drawing(
        layout="fleet.html",
        title="GPU slices of the cluster",
        pieces={
            "name": piece(_PIECES, "name_of", _facts(fleet) if fleet else ()),
            "status": piece(_PIECES, "status_of", _status(scene)),
            "cards": piece("pieces/node.html", "cards_of", list(_cards(fleet)) if fleet else ()),
            "notices": piece(_PIECES, "notices_of", list(_notices(scene))),
            "sick": piece(_PIECES, "sick_of", tables.get("sick", _EMPTY)),
            "idle": piece(_PIECES, "idle_of", tables.get("idle", _EMPTY), fleet is not None),
            "nodes": piece(_PIECES, "nodes_of", tables.get("nodes", _EMPTY)),
            "namespaces": piece(_PIECES, "namespaces_of", tables.get("namespaces", _EMPTY)),
            "advice": piece(_PIECES, "advice_of", advice_table(advice, places), advice_totals(advice)),
        },
        facts={"demo": False},
    )


def _tables(fleet: Fleet, places: Places, orders: Orders) -> dict[str, Table]:
    return {
        "nodes": node_table(fleet, places, orders),
        "namespaces": namespace_table(fleet, orders),
        "idle": idle_table(fleet, places, orders),
        "sick": sick_table(fleet, places),
    }


def _facts(fleet: Fleet) -> tuple[str, ...]:
    silent = len(fleet.silent)
    return (
        plural(len(fleet.nodes), "node"),
        *((f"{silent} not answering",) if silent else ()),
        gpu_count(fleet.nodes),
        plural(None if fleet.namespaces is None else len(fleet.namespaces), "namespace"),
    )


def _status(scene: FleetScene) -> Status:
    read = scene.read
    if read.read_at is None:
        return Status("not read yet", "", old=bool(read.error))
    age = max(scene.now - read.read_at, 0.0)
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(read.read_at))
    old_after = 0.0 if read.error else _OLD_INTERVALS * read.interval
    return Status(f"read {duration(age)} ago", at, age > old_after, old_after)


def _notices(scene: FleetScene) -> Iterator[FleetNotice]:
    read = scene.read
    if read.error:
        since = scene.now - (read.failing_since or scene.now)
        kept = "The page shows the last answer." if read.fleet else "There is no cluster data yet."
        yield FleetNotice(
            "bad", f"The cluster could not be read for {duration(since)}", f"{read.error}. {kept}"
        )
    elif read.fleet is None:
        yield FleetNotice("note", "The cluster is read for the first time", "This takes a few seconds.")
    if read.fleet is not None:
        for name, error in read.fleet.problems:
            yield FleetNotice("bad", f"Not known: {name}", error)


def _cards(fleet: Fleet) -> Iterator[Card]:
    nodes = fleet.nodes
    memory = total_share(node.memory for node in nodes)
    compute = total_share(node.compute for node in nodes)
    yield _slices(fleet)
    size = total_amount(node.memory_total for node in nodes)
    yield Card(
        name="Memory",
        figure=_labelled(memory.used, gibibytes, "GiB used"),
        of=f"of {size.text(gibibytes)}",
        bars=_bars(memory, size, f"{memory.held.text(gibibytes)} held"),
        waste=f"{memory.wasted.text(gibibytes)} GiB held but not used",
    )
    count = total_amount(node.gpus for node in nodes)
    yield Card(
        name="Compute",
        figure=_labelled(compute.used, gpus, "GPUs used"),
        of=f"of {count.text(whole)}",
        bars=_bars(compute, count, f"{compute.held.text(gpus)} held"),
        waste=f"{compute.wasted.text(gpus)} GPUs held but not used",
    )
    yield _attention(fleet)


def _slices(fleet: Fleet) -> Card:
    """Return the card of slices, or of the first resource with a known total; others as text."""
    parts = list(named(shown_units(*total_slices(fleet.nodes))))
    place = next((place for place, (_, part) in enumerate(parts) if part.offered.value is not None), 0)
    name, first = parts.pop(place)
    return Card(
        name="Slices",
        figure=_labelled(first.held, whole, "held"),
        of=" ".join(filter(None, ("of", first.offered.text(whole), name))),
        bars=((size_bar("slices held", "held", first.held, first.offered.value), _free(first)),),
        detail=" · ".join((*(word(*other) for other in parts), _by_whom(fleet))),
    )


def _by_whom(fleet: Fleet) -> str:
    if fleet.namespaces is None:
        return "holders could not be queried"
    known = [namespace.holders for namespace in fleet.namespaces if namespace.holders is not None]
    holders = sum(known) if len(known) == len(fleet.namespaces) else None
    return f"by {plural(holders, 'holder')} in {plural(len(fleet.namespaces), 'namespace')}"


def _bars(share: Share, size: Amount, held: str) -> tuple[tuple[Bar, str], ...]:
    return (
        (size_bar("held", "held", share.held, size.value), held),
        (size_bar("used", "used", share.used, size.value), "used"),
    )


def _labelled(value: Amount, write: Callable[[float], str], unit: str) -> Figure:
    figure = amount(value, write)
    return figure if figure.why else Figure(f"{figure.text} {unit}")


def _free(units: Units) -> str:
    held, offered = units.held, units.offered
    if held.value is None or offered.value is None:
        return ""
    # An unhealthy slice may be a held one.
    most = held.missing or units.unhealthy != 0
    if most and offered.missing:
        return ""
    mark = "at most " if most else "≥ " if offered.missing else ""
    sick = f", {units.unhealthy:.0f} unhealthy" if units.unhealthy else ""
    return f"{mark}{max(offered.value - held.value, 0):.0f} free{sick}"


def _attention(fleet: Fleet) -> Card:
    counts = (
        (Amount(len(fleet.silent), 1), "silent node"),
        (fleet.bad, "unhealthy GPU"),
        (fleet.idle_holders, "idle holder"),
    )
    nouns = [_counted(count, noun) for count, noun in counts if count.total]
    unknown = [f"{noun}s" for count, noun in counts if count.missing]
    nothing = Figure(UNKNOWN, QUERY_FAILED) if unknown else Figure("nothing")
    return Card(
        name="Needs attention",
        figure=Figure(nouns[0]) if nouns else nothing,
        of="".join(f"and {noun} " for noun in nouns[1:]),
        findings=tuple(_findings(fleet)),
        detail=f"incomplete: {', '.join(unknown)}" if unknown else "",
    )


def _counted(count: Amount, noun: str) -> str:
    return f"{count.text(whole)} {noun}{'' if count.total == 1 and not count.missing else 's'}"


def _findings(fleet: Fleet) -> Iterator[Finding]:
    idle = fleet.idle_totals
    if fleet.silent:
        yield Finding("bad", f"{plural(len(fleet.silent), 'node')} not answering", "#nodes")
    if fleet.bad.total:
        yield Finding("bad", _counted(fleet.bad, "unhealthy GPU"), "#sick")
    if fleet.idle_holders.total:
        yield Finding("idle-memory", _counted(fleet.idle_holders, "idle holder"), "#idle")
    if idle.compute_held:
        yield Finding("idle", f"{gpus(idle.compute_held)} GPUs held by idle holders", "#idle")
