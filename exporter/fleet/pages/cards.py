"""The cards at the top of the page of a cluster: sums of all nodes, and what needs attention."""

from collections.abc import Callable, Iterator

from exporter.fleet.amounts import Amount, Share, Units, named, shown_units, size_of, whole
from exporter.fleet.model import Fleet
from exporter.fleet.pages import tables
from exporter.fleet.pages.tables import figure, size_bar
from exporter.web.kit.elements import Card, Figure, Finding
from exporter.wording import UNKNOWN, gibibytes, hundredths, plural


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
