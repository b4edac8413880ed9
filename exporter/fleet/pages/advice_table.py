"""The table of advice: which slice would fit each workload."""

import time
from typing import NamedTuple

from exporter.advice.model import Advice, Window
from exporter.fleet.amounts import gpu_shares
from exporter.fleet.cluster_advice import WorkloadName, coverage_words, verdict_words, workload_names
from exporter.fleet.model import NodeKey
from exporter.fleet.pages.links import Links
from exporter.fleet.pages.tables import Heading, Table
from exporter.fleet.watch import AdviceRead
from exporter.formats.advice import advice_paragraphs
from exporter.web.kit.elements import Figure
from exporter.wording import UNKNOWN, duration

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
        freed=Figure(gpu_shares(option.gpus_freed)) if option else Figure(UNKNOWN, advice.why),
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
