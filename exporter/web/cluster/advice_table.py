"""The table of a cluster's advice: what frees most comes first."""

import time
from collections.abc import Sequence

from exporter.advice import Advice
from exporter.fleet.cluster_advice import savings_lines, verdict_words, workload_words
from exporter.fleet.rendering import gpus
from exporter.fleet.watch import AdviceRead
from exporter.formats.advice import advice_paragraphs
from exporter.formats.wording import UNKNOWN, decimal, duration
from exporter.web.cluster.fleet_rows import AdviceRow, Heading, Table
from exporter.web.pages.scene import Figure

ROWS = 50
_HEADINGS = (
    Heading("Namespace / workload"),
    Heading("Holds"),
    Heading("Would fit"),
    Heading("GPUs freed", title="mean over the window; negative: more is needed", look="end"),
    Heading("Confidence", title="by the time seen and the part of it that was measured"),
)


def advice_table(read: AdviceRead) -> Table:
    """Return the table; without advice, why there is none."""
    if read.found is None:
        return Table((), (), 0, f"Not known: {read.error}.")
    advices = read.found.advices
    rows = [_row(advice) for advice in advices[:ROWS]]
    age = f"This is the advice of {_date(read.found.at)}. A newer read failed: {read.error}."
    old = age if read.error else ""
    unknown = " ".join((*(f"Not known: {problem}." for problem in read.found.problems), old)).strip()
    return Table(_HEADINGS, rows, len(advices) - len(rows), unknown)


def _date(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))


def advice_totals(read: AdviceRead) -> Sequence[str]:
    """Return what all advice would free, as sentences."""
    return () if read.found is None else tuple(savings_lines(read.found.advices))


def _row(advice: Advice) -> AdviceRow:
    option = advice.options[0] if advice.options else None
    return AdviceRow(
        name=workload_words(advice),
        now=advice.now,
        verdict=verdict_words(advice),
        notes=option.notes if option is not None else (),
        freed=Figure(UNKNOWN, advice.why) if option is None else Figure(gpus(option.gpus_freed)),
        sure=_sure(advice),
        why=advice_paragraphs(advice)[-1],
    )


def _sure(advice: Advice) -> str:
    seen = f"{duration(advice.window.span)}, {decimal(100 * advice.coverage, 0)} % measured"
    return f"{advice.confidence}: {seen}" if advice.confidence else seen
