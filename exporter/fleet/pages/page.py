"""The page of a cluster, made from the last answer."""

import time
from collections.abc import Iterator
from typing import NamedTuple

from exporter.advice.model import Advice, Window
from exporter.fleet.cluster_advice import (
    WorkloadName,
    coverage_words,
    savings_lines,
    verdict_words,
    workload_names,
)
from exporter.fleet.model import Fleet, NodeKey
from exporter.fleet.narrowed import read_of, unknown_names, unknown_words
from exporter.fleet.pages import tables
from exporter.fleet.pages.cards import cards, counted
from exporter.fleet.pages.links import Links, NodeUrl
from exporter.fleet.pages.tables import Heading, Orders, Table
from exporter.fleet.targets import some_names
from exporter.fleet.text import UNRECORDED, gpu_count, unrecorded_nodes
from exporter.fleet.watch import AdviceRead, FleetRead
from exporter.formats.advice import advice_paragraphs
from exporter.web.kit.elements import Figure, Notice
from exporter.web.kit.html import Drawing, piece
from exporter.wording import UNKNOWN, duration, hundredths, plural

_PIECES = "pieces/fleet.html"
_OLD_INTERVALS = 3


class FleetScene(NamedTuple):
    """The cluster as shown on the page."""

    read: FleetRead
    now: float  # Unix time
    node_url: NodeUrl
    orders: Orders
    only: tuple[str, ...] = ()  # namespaces that the hub shows, whatever the URL; () for all

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The namespaces whose holders are shown, () for all."""
        return self.orders.namespace or self.only


class Scope(NamedTuple):
    """The namespaces whose holders are shown."""

    names: str
    href: str  # shows all, "" if there is no other choice


class DataAge(NamedTuple):
    """The age of the page's data."""

    text: str
    at: str
    old: bool
    old_after: float = 0.0  # age in seconds from which it is old


def fleet_drawing(scene: FleetScene) -> Drawing:
    """Return the page of the cluster; without data, why there is none."""
    read, orders = scene.read, scene.orders
    narrowed = read_of(read, scene.namespaces)
    whole_fleet, fleet, advice = read.fleet, narrowed.fleet, narrowed.advice.found
    links = Links(fleet.nodes if fleet else (), scene.node_url)
    sick = idle = nodes = namespaces = Table()
    if fleet is not None:
        sick, idle = tables.sick_table(fleet, links), tables.idle_table(fleet, links, orders)
        nodes, namespaces = tables.node_table(fleet, links, orders), tables.namespace_table(fleet, orders)
    savings = list(savings_lines(advice.advices)) if advice else ()
    return Drawing(
        layout="fleet.html",
        title="GPU slices of the cluster",
        pieces={
            "name": piece(_PIECES, "name_of", _facts(whole_fleet) if whole_fleet else (), _scope(scene)),
            "status": piece(_PIECES, "status_of", _age(scene)),
            "cards": piece("pieces/cards.html", "cards_of", list(cards(whole_fleet)) if whole_fleet else ()),
            "notices": piece(_PIECES, "notices_of", list(_notices(scene))),
            "sick": piece(_PIECES, "sick_of", sick),
            "idle": piece(_PIECES, "idle_of", idle, fleet is not None),
            "nodes": piece(_PIECES, "nodes_of", nodes),
            "namespaces": piece(_PIECES, "namespaces_of", namespaces),
            "advice": piece(_PIECES, "advice_of", advice_table(narrowed.advice, links), savings),
        },
        facts={"demo": False},
    )


def _scope(scene: FleetScene) -> Scope | None:
    if not scene.namespaces:
        return None
    href = scene.orders.href(namespace=()) if scene.orders.namespace and not scene.only else ""
    return Scope(some_names(scene.namespaces), href)


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
        for name in unknown_names(read, scene.namespaces):
            yield Notice("bad", f"No such namespace: {name}", f"{unknown_words(read.fleet, name)}.")
        without = unrecorded_nodes(read.fleet.nodes, read.fleet.problems)
        if without:
            yield Notice("note", f"Records of {plural(without, 'node')} are missing", f"{UNRECORDED}.")


_MOST_ROWS = 50
_HEADINGS = (
    Heading("Namespace / workload"),
    Heading("Holds"),
    Heading("Would fit"),
    Heading("GPUs freed", title="mean over the window; negative: more is needed", look="end"),
    Heading("Confidence", title="by the time seen and the part of it that was measured"),
)


class AdviceRow(NamedTuple):
    """A row of the advice."""

    workload: WorkloadName
    advice: Advice
    href: str  # of the page of a holder that runs, or of the GPU on which several take turns
    verdict: str
    notes: tuple[str, ...]
    freed: Figure
    seen: tuple[str, ...]  # for how long, and the measured share
    why: str  # with what it goes by


def advice_table(read: AdviceRead, links: Links) -> Table:
    """Return the table; without advice, why there is none."""
    if read.found is None:
        return Table(unknown=f"Not known: {read.error}.")
    advices = read.found.advices
    shown = zip(workload_names(advices), advices[:_MOST_ROWS], strict=False)
    rows = [_row(name, advice, links) for name, advice in shown]
    unknown = [f"Not known: {problem}." for problem in read.found.problems]
    if read.error:
        date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(read.found.at))
        unknown.append(f"This is the advice of {date}. A newer read failed: {read.error}.")
    return Table(_HEADINGS, rows, len(advices) - len(rows), " ".join(unknown))


def _row(workload: WorkloadName, advice: Advice, links: Links) -> AdviceRow:
    option = advice.options[0] if advice.options else None
    return AdviceRow(
        workload=workload,
        advice=advice,
        href=_href(advice.window, links),
        verdict=verdict_words(advice),
        notes=option.notes if option else (),
        freed=Figure(hundredths(option.gpus_freed)) if option else Figure(UNKNOWN, advice.why),
        seen=(duration(advice.window.span), f"{coverage_words(advice)} measured"),
        why=advice_paragraphs(advice)[-1],
    )


def _href(window: Window, links: Links) -> str:
    """Return the URL of the largest holder that runs; "" if none does, or its node is not known."""
    running = [use for use in window.uses if use.node]
    if not running:
        return ""
    largest = max(running, key=lambda use: use.memory_peak or 0)
    node = NodeKey(window.cluster, largest.node)
    if not window.workload:
        return links.gpu(node, largest.device.uuid)
    return links.holder(node, largest.holder)
