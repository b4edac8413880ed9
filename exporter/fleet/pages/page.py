"""The page of a cluster, made from the last answer."""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from exporter.advice.model import Advice, Window
from exporter.fleet.amounts import Amount, Share, Units, named, shown_units, size_of, whole
from exporter.fleet.cluster_advice import (
    WorkloadName,
    coverage_words,
    savings_lines,
    verdict_words,
    workload_names,
)
from exporter.fleet.model import Fleet, NodeKey
from exporter.fleet.pages import tables
from exporter.fleet.pages.links import Links, NodeUrl
from exporter.fleet.pages.tables import Heading, Orders, Table, figure, size_bar
from exporter.fleet.text import UNRECORDED, gpu_count, unrecorded_nodes
from exporter.fleet.watch import AdviceRead, FleetRead
from exporter.formats.advice import advice_paragraphs
from exporter.web.kit.elements import Card, Figure, Finding, Notice
from exporter.web.kit.html import Drawing, piece
from exporter.wording import UNKNOWN, duration, gibibytes, hundredths, plural

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
        sick, idle = tables.sick_table(fleet, links), tables.idle_table(fleet, links, orders)
        nodes, namespaces = tables.node_table(fleet, links, orders), tables.namespace_table(fleet, orders)
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


def cards(fleet: Fleet) -> Iterator[Card]:
    """Yield the cards."""
    total = fleet.total
    yield _slices(fleet)
    yield _use("Memory", total.memory, gibibytes, "GiB", size=total.memory_total, write_size=gibibytes)
    yield _use("Compute", total.compute, hundredths, "GPUs", size=total.gpus, write_size=whole)
    yield _attention(fleet)


def counted(count: Amount, noun: str) -> str:
    """Return a count with its noun."""
    return f"{count.text(whole)} {noun}{'' if count.total == 1 and not count.missing else 's'}"


def _use(  # noqa: PLR0913 - two amounts, and how each is written
    name: str,
    share: Share,
    write: Callable[[float], str],
    unit: str,
    *,
    size: Amount,
    write_size: Callable[[float], str],
) -> Card:
    """Return the card of what is held and used of a size."""
    size = size_of(size, share.held, share.used)
    unused = share.wasted
    return Card(
        name=name,
        figure=_with_unit(share.used, write, f"{unit} used"),
        of=f"of {size.text(write_size)}",
        bars=(
            (size_bar("held", "held", share.held, size.value), f"{share.held.text(write)} held"),
            (size_bar("used", "used", share.used, size.value), "used"),
        ),
        waste="" if unused.value is None else f"{unused.text(write)} {unit} held but not used",
    )


def _slices(fleet: Fleet) -> Card:
    """Return the card of slices, or of the first resource with a known total; others as text."""
    parts = list(named(shown_units(fleet.total.slices, fleet.total.units)))
    sized = [part for part in parts if part[1].size.value is not None]
    name, first = sized[0] if sized else parts[0]
    others = [part.text(other) for other, part in parts if part is not first]
    return Card(
        name="Slices",
        figure=_with_unit(first.held, whole, "held"),
        of=f"of {first.size.text(whole)}{f' {name}' if name else ''}",
        bars=((size_bar("slices held", "held", first.held, first.size.value), _free(first)),),
        detail=" · ".join((*others, _by_whom(fleet))),
    )


def _by_whom(fleet: Fleet) -> str:
    if fleet.namespaces is None:
        return "holders could not be queried"
    holders = Amount(missing=int(not fleet.all_namespaces))
    for namespace in fleet.namespaces:
        holders += namespace.holder_count
    return f"by {counted(holders, 'holder')} in {counted(fleet.namespace_count, 'namespace')}"


def _with_unit(amount: Amount, write: Callable[[float], str], unit: str) -> Figure:
    known = figure(amount, write)
    return known if known.why else Figure(f"{known.text} {unit}")


def _free(units: Units) -> str:
    held, offered = units.held, units.size
    if held.value is None or offered.value is None:
        return ""
    # An unhealthy slice may be a held one.
    at_most = held.missing or units.unhealthy != 0
    if at_most and offered.missing:
        return ""
    bound = ""
    if at_most:
        bound = "at most "
    elif offered.missing:
        bound = "≥ "
    unhealthy = f", {units.unhealthy:.0f} unhealthy" if units.unhealthy else ""
    return f"{bound}{max(offered.value - held.value, 0):.0f} free{unhealthy}"


def _attention(fleet: Fleet) -> Card:
    counts = (
        (Amount(len(fleet.silent), 1), "silent node"),
        (fleet.bad, "unhealthy GPU"),
        (fleet.idle_holders, "idle holder"),
    )
    nouns = [counted(count, noun) for count, noun in counts if count.total]
    unknown = [f"{noun}s" for count, noun in counts if count.missing]
    if nouns:
        worst = Figure(nouns[0])
    elif unknown:
        worst = Figure(UNKNOWN, tables.QUERY_FAILED if fleet.problems else "not known of all")
    else:
        worst = Figure("nothing")
    return Card(
        name="Needs attention",
        figure=worst,
        of="".join(f"and {noun} " for noun in nouns[1:]),
        findings=tuple(_findings(fleet)),
        detail=f"incomplete: {', '.join(unknown)}" if unknown else "",
    )


def _findings(fleet: Fleet) -> Iterator[Finding]:
    if fleet.silent:
        yield Finding("bad", f"{plural(len(fleet.silent), 'node')} not answering", "#nodes")
    if fleet.bad.total:
        yield Finding("bad", counted(fleet.bad, "unhealthy GPU"), "#sick")
    if fleet.idle_holders.total:
        yield Finding("idle-memory", counted(fleet.idle_holders, "idle holder"), "#idle")
    held = fleet.total.idle_compute.value
    if held:
        yield Finding("idle", f"{hundredths(held)} GPUs held by idle holders", "#idle")


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
