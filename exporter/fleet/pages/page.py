"""The page of a cluster, made from the last answer."""

import time
from collections.abc import Iterator
from typing import NamedTuple

from exporter.fleet.cluster_advice import savings_lines
from exporter.fleet.model import Fleet
from exporter.fleet.pages.advice_table import advice_table
from exporter.fleet.pages.cards import cards, counted
from exporter.fleet.pages.links import Links, NodeUrl
from exporter.fleet.pages.tables import Orders, Table, idle_table, namespace_table, node_table, sick_table
from exporter.fleet.text import UNRECORDED, gpu_count, unrecorded_nodes
from exporter.fleet.watch import FleetRead
from exporter.web.kit.elements import Notice
from exporter.web.kit.html import Drawing, piece
from exporter.wording import duration, plural

_PIECES = "pieces/fleet.html"
_OLD_INTERVALS = 3


class FleetScene(NamedTuple):
    """The cluster as shown on the page."""

    read: FleetRead
    now: float  # Unix time
    node_url: NodeUrl
    orders: Orders


class DataAge(NamedTuple):
    """The age of the page's data."""

    text: str
    at: str
    old: bool
    old_after: float = 0.0  # age in seconds from which it is old


def fleet_drawing(scene: FleetScene) -> Drawing:
    """Return the page of the cluster; without data, why there is none."""
    read, orders = scene.read, scene.orders
    fleet, advice = read.fleet, read.advice.found
    links = Links(fleet.nodes if fleet else (), scene.node_url)
    sick = idle = nodes = namespaces = Table()
    if fleet is not None:
        sick, idle = sick_table(fleet, links), idle_table(fleet, links, orders)
        nodes, namespaces = node_table(fleet, links, orders), namespace_table(fleet, orders)
    savings = list(savings_lines(advice.advices)) if advice else ()
    return Drawing(
        layout="fleet.html",
        title="GPU slices of the cluster",
        pieces={
            "name": piece(_PIECES, "name_of", _facts(fleet) if fleet else ()),
            "status": piece(_PIECES, "status_of", _age(scene)),
            "cards": piece("pieces/cards.html", "cards_of", list(cards(fleet)) if fleet else ()),
            "notices": piece(_PIECES, "notices_of", list(_notices(scene))),
            "sick": piece(_PIECES, "sick_of", sick),
            "idle": piece(_PIECES, "idle_of", idle, fleet is not None),
            "nodes": piece(_PIECES, "nodes_of", nodes),
            "namespaces": piece(_PIECES, "namespaces_of", namespaces),
            "advice": piece(_PIECES, "advice_of", advice_table(read.advice, links), savings),
        },
        facts={"demo": False},
    )


def _facts(fleet: Fleet) -> list[str]:
    facts = [plural(len(fleet.nodes), "node")]
    if fleet.silent:
        facts.append(f"{len(fleet.silent)} not answering")
    return [*facts, gpu_count(fleet.total.gpus), counted(fleet.namespace_count, "namespace")]


def _age(scene: FleetScene) -> DataAge:
    read = scene.read
    if read.read_at is None:
        return DataAge("not read yet", "", old=bool(read.error))
    age = max(scene.now - read.read_at, 0.0)
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(read.read_at))
    old_after = 0.0 if read.error else _OLD_INTERVALS * read.interval
    return DataAge(f"read {duration(age)} ago", at, age > old_after, old_after)


def _notices(scene: FleetScene) -> Iterator[Notice]:
    read = scene.read
    if read.error:
        since = scene.now - (read.failing_since or scene.now)
        kept = "The page shows the last answer." if read.fleet else "There is no cluster data yet."
        yield Notice("bad", f"The cluster could not be read for {duration(since)}", f"{read.error}. {kept}")
    elif read.fleet is None:
        yield Notice("note", "The cluster is read for the first time", "This takes a few seconds.")
    if read.fleet is not None:
        for name, error in read.fleet.problems:
            yield Notice("bad", f"Not known: {name}", error)
        without = unrecorded_nodes(read.fleet.nodes, read.fleet.problems)
        if without:
            yield Notice("note", f"Records of {plural(without, 'node')} are missing", f"{UNRECORDED}.")
