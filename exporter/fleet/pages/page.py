"""The page of a cluster, made from the last answer."""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from exporter.advice.model import Advice, Window
from exporter.fleet import Fleet, NodeKey
from exporter.fleet.amounts import (
    Amount,
    Share,
    Units,
    named,
    shown_units,
    size_of,
    total_amount,
    total_share,
    whole,
    word,
)
from exporter.fleet.cluster_advice import Named, names_of, savings_lines, verdict_words
from exporter.fleet.pages.rows import AdviceRow, Heading, Table
from exporter.fleet.pages.tables import (
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
from exporter.fleet.rendering import UNRECORDED, gpu_count, gpus, total_slices
from exporter.fleet.targets import NodeLinks
from exporter.fleet.watch import AdviceRead, FleetRead
from exporter.formats.advice import advice_paragraphs
from exporter.web.kit.elements import Card, Figure, Finding, Notice
from exporter.web.kit.html import Drawing, piece
from exporter.wording import UNKNOWN, decimal, duration, gibibytes, plural

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


def fleet_drawing(scene: FleetScene) -> Drawing:
    """Return the page of the cluster; without data, why there is none."""
    fleet = scene.read.fleet
    places = Places(fleet.nodes if fleet else (), scene.links)
    orders, advice = scene.orders, scene.read.advice
    idle = idle_table(fleet, places, orders) if fleet else _EMPTY
    return Drawing(
        layout="fleet.html",
        title="GPU slices of the cluster",
        pieces={
            "name": piece(_PIECES, "name_of", _facts(fleet) if fleet else ()),
            "status": piece(_PIECES, "status_of", _status(scene)),
            "cards": piece("pieces/cards.html", "cards_of", list(_cards(fleet)) if fleet else ()),
            "notices": piece(_PIECES, "notices_of", list(_notices(scene))),
            "sick": piece(_PIECES, "sick_of", sick_table(fleet, places) if fleet else _EMPTY),
            "idle": piece(_PIECES, "idle_of", idle, fleet is not None),
            "nodes": piece(_PIECES, "nodes_of", node_table(fleet, places, orders) if fleet else _EMPTY),
            "namespaces": piece(
                _PIECES, "namespaces_of", namespace_table(fleet, orders) if fleet else _EMPTY
            ),
            "advice": piece(_PIECES, "advice_of", advice_table(advice, places), advice_totals(advice)),
        },
        facts={"demo": False},
    )


def _facts(fleet: Fleet) -> tuple[str, ...]:
    silent = len(fleet.silent)
    return (
        plural(len(fleet.nodes), "node"),
        *((f"{silent} not answering",) if silent else ()),
        gpu_count(fleet.nodes),
        _counted(fleet.namespace_count, "namespace"),
    )


def _status(scene: FleetScene) -> Status:
    read = scene.read
    if read.read_at is None:
        return Status("not read yet", "", old=bool(read.error))
    age = max(scene.now - read.read_at, 0.0)
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(read.read_at))
    old_after = 0.0 if read.error else _OLD_INTERVALS * read.interval
    return Status(f"read {duration(age)} ago", at, age > old_after, old_after)


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
        yield from _unrecorded(read.fleet)


def _unrecorded(fleet: Fleet) -> Iterator[Notice]:
    without = sum(node.unrecorded for node in fleet.nodes)
    if without and not fleet.problems:
        yield Notice("note", f"Records of {plural(without, 'node')} are missing", f"{UNRECORDED}.")


def _cards(fleet: Fleet) -> Iterator[Card]:
    nodes = fleet.nodes
    memory = total_share(node.memory for node in nodes)
    compute = total_share(node.compute for node in nodes)
    memory_size = total_amount(node.memory_total for node in nodes)
    count = total_amount(node.gpus for node in nodes)
    yield _slices(fleet)
    yield _use("Memory", memory, memory_size, gibibytes, (gibibytes, "GiB"))
    yield _use("Compute", compute, count, whole, (gpus, "GPUs"))
    yield _attention(fleet)


def _use(
    name: str,
    share: Share,
    size: Amount,
    write_size: Callable[[float], str],
    unit: tuple[Callable[[float], str], str],
) -> Card:
    """Return the card of what is held and used; ``unit`` writes an amount, and is its unit."""
    (write, name_of_unit), unused = unit, share.wasted
    size = size_of(size, share.held, share.used)
    return Card(
        name=name,
        figure=_labelled(share.used, write, f"{name_of_unit} used"),
        of=f"of {size.text(write_size)}",
        bars=(
            (size_bar("held", "held", share.held, size.value), f"{share.held.text(write)} held"),
            (size_bar("used", "used", share.used, size.value), "used"),
        ),
        waste="" if unused.value is None else f"{unused.text(write)} {name_of_unit} held but not used",
    )


def _slices(fleet: Fleet) -> Card:
    """Return the card of slices, or of the first resource with a known total; others as text."""
    parts = list(named(shown_units(*total_slices(fleet.nodes))))
    place = next((place for place, (_, part) in enumerate(parts) if part.size.value is not None), 0)
    name, first = parts.pop(place)
    return Card(
        name="Slices",
        figure=_labelled(first.held, whole, "held"),
        of=" ".join(filter(None, ("of", first.size.text(whole), name))),
        bars=((size_bar("slices held", "held", first.held, first.size.value), _free(first)),),
        detail=" · ".join((*(word(*other) for other in parts), _by_whom(fleet))),
    )


def _by_whom(fleet: Fleet) -> str:
    if fleet.namespaces is None:
        return "holders could not be queried"
    holders = total_amount(namespace.holder_count for namespace in fleet.namespaces)
    every = holders + Amount(missing=int(not fleet.all_namespaces))
    return f"by {_counted(every, 'holder')} in {_counted(fleet.namespace_count, 'namespace')}"


def _labelled(value: Amount, write: Callable[[float], str], unit: str) -> Figure:
    figure = amount(value, write)
    return figure if figure.why else Figure(f"{figure.text} {unit}")


def _free(units: Units) -> str:
    held, offered = units.held, units.size
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
    why = QUERY_FAILED if fleet.problems else "not known of all"
    nothing = Figure(UNKNOWN, why) if unknown else Figure("nothing")
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


ROWS = 50
_HEADINGS = (
    Heading("Namespace / workload"),
    Heading("Holds"),
    Heading("Would fit"),
    Heading("GPUs freed", title="mean over the window; negative: more is needed", look="end"),
    Heading("Confidence", title="by the time seen and the part of it that was measured"),
)


def advice_table(read: AdviceRead, places: Places) -> Table:
    """Return the table; without advice, why there is none."""
    if read.found is None:
        return Table((), (), 0, f"Not known: {read.error}.")
    advices = read.found.advices
    shown = islice(zip(names_of(advices), advices, strict=True), ROWS)
    rows = [_advice_row(*each, places) for each in shown]
    date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(read.found.at))
    age = f"This is the advice of {date}. A newer read failed: {read.error}."
    old = age if read.error else ""
    unknown = " ".join((*(f"Not known: {problem}." for problem in read.found.problems), old)).strip()
    return Table(_HEADINGS, rows, len(advices) - len(rows), unknown)


def advice_totals(read: AdviceRead) -> Sequence[str]:
    """Return what all advice would free, as sentences."""
    return () if read.found is None else tuple(savings_lines(read.found.advices))


def _advice_row(holder: Named, advice: Advice, places: Places) -> AdviceRow:
    option = advice.options[0] if advice.options else None
    return AdviceRow(
        space=holder.space,
        name=holder.name,
        container=advice.window.container,
        href=_href(advice.window, places),
        now=advice.now,
        verdict=verdict_words(advice),
        notes=option.notes if option is not None else (),
        freed=Figure(UNKNOWN, advice.why) if option is None else Figure(gpus(option.gpus_freed)),
        sure=advice.confidence or "",
        seen=(duration(advice.window.span), f"{decimal(100 * advice.coverage, 0)} % measured"),
        why=advice_paragraphs(advice)[-1],
    )


def _href(window: Window, places: Places) -> str:
    """Return the URL of the largest holder that runs; "" if none does, or its node is not known."""
    running = [use for use in window.uses if use.node]
    if not running:
        return ""
    largest = max(running, key=lambda use: use.memory_peak or 0)
    node = NodeKey(window.cluster, largest.node)
    if not window.workload:
        return places.gpu(node, largest.device.uuid)
    return places.holder(node, largest.holder)
