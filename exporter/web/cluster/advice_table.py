"""The table of a cluster's advice: what frees most comes first."""

import time
from collections.abc import Sequence
from itertools import islice

from exporter.advice import Advice, Window
from exporter.fleet.cluster_advice import Named, names_of, savings_lines, verdict_words
from exporter.fleet.cluster_model import NodeKey
from exporter.fleet.rendering import gpus
from exporter.fleet.watch import AdviceRead
from exporter.formats.advice import advice_paragraphs
from exporter.formats.wording import UNKNOWN, decimal, duration
from exporter.web.cluster.fleet_rows import AdviceRow, Heading, Table
from exporter.web.cluster.fleet_tables import Places
from exporter.web.pages.scene import Figure

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
    rows = [_row(*each, places) for each in shown]
    age = f"This is the advice of {_date(read.found.at)}. A newer read failed: {read.error}."
    old = age if read.error else ""
    unknown = " ".join((*(f"Not known: {problem}." for problem in read.found.problems), old)).strip()
    return Table(_HEADINGS, rows, len(advices) - len(rows), unknown)


def _date(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))


def advice_totals(read: AdviceRead) -> Sequence[str]:
    """Return what all advice would free, as sentences."""
    return () if read.found is None else tuple(savings_lines(read.found.advices))


def _row(named: Named, advice: Advice, places: Places) -> AdviceRow:
    option = advice.options[0] if advice.options else None
    return AdviceRow(
        space=named.space,
        name=named.name,
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
