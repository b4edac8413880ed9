"""Advice on the workloads of a cluster, from the last seven days in Prometheus: read, and written as text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from exporter.advice import advise
from exporter.advice.model import Advice, savings_of
from exporter.concurrency import in_thread
from exporter.fleet.advice_queries import DAYS, NAMESPACES_RECORDED, held_question, known_question
from exporter.fleet.advice_windows import advice_windows
from exporter.fleet.prometheus import Prometheus
from exporter.fleet.targets import MissingSeriesError, UnknownNameError, read_clock, some_names
from exporter.formats.advice import advice_document
from exporter.wording import UNKNOWN, aligned, decimal, duration, hundredths, plural, printable

_NO_RECORDS = (
    "this Prometheus has no records for advice: load alerts/rules/gpuslice-recording.yaml (see "
    "docs/recording-rules.md); new rules have them after one to two hours"
)
_NO_PROCESSES = (
    "Names of processes are not in Prometheus: an engine that takes memory in advance is recognized by its "
    "memory alone."
)
_HEADINGS = ("WORKLOAD", "NOW", "WOULD FIT", "GPUS FREED", "SEEN", "MEASURED", "CONFIDENCE")
_MOST_REASONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAdvice:
    """Advice on all workloads, or on those of one namespace; what frees most comes first in each cluster."""

    at: float  # Unix time of Prometheus
    advices: tuple[Advice, ...]
    problems: tuple[str, ...] = ()  # failed queries, as sentences


async def read_advice(prometheus: Prometheus, namespace: str = "") -> ClusterAdvice:
    """Return the advice of now.

    Raises PrometheusError if nothing can be read, MissingSeriesError if the whole cluster has no records, and
    UnknownNameError if nothing is known of the namespace.
    """
    at = await read_clock(prometheus)
    windows, problems = await advice_windows(prometheus, at, namespace)
    if not (windows or problems):
        await require_none_held(prometheus, at, namespace)
    # For a large cluster this is too much work for the event loop.
    advices = await in_thread(lambda: tuple(sorted(map(advise, windows), key=_order)))
    return ClusterAdvice(at=at, advices=advices, problems=problems)


async def require_none_held(prometheus: Prometheus, at: float, namespace: str) -> None:
    """Raise an error unless it is known that no workload, of the namespace or of any, held a slice.

    MissingSeriesError: the records are missing; UnknownNameError: nothing is known of the namespace.
    """
    recorded = [sample.text("namespace") for sample in await prometheus.query(NAMESPACES_RECORDED, at)]
    if not recorded or await prometheus.query(held_question(namespace), at):
        raise MissingSeriesError(_NO_RECORDS)
    if namespace and not await prometheus.query(known_question(namespace), at):
        held = sorted(filter(None, recorded))
        in_others = f"slices were held in {some_names(held)}" if held else "no namespace held a slice"
        raise UnknownNameError(
            f"nothing is known of a namespace {printable(namespace)!r}; in the last {DAYS} days {in_others}"
        )


def _order(advice: Advice) -> tuple[object, ...]:
    window = advice.window
    freed = advice.options[0].gpus_freed if advice.options else 0.0
    return window.cluster, not advice.options, -freed, window.namespace, window.workload, window.container


class WorkloadName(NamedTuple):
    """The name of a workload, without its container."""

    space: str  # namespace with a slash, after its cluster if there are several; "" for the holders of a GPU
    name: str


def workload_names(advices: Sequence[Advice]) -> Iterator[WorkloadName]:
    """Yield the name of each workload."""
    several = len({advice.window.cluster for advice in advices}) > 1
    for advice in advices:
        window = advice.window
        space = f"{window.cluster}: " if several and window.cluster else ""
        if window.workload:
            yield WorkloadName(printable(f"{space}{window.namespace}/"), printable(window.workload))
        else:
            device = window.uses[0].device
            yield WorkloadName(printable(space), printable(f"holders of {device.mig_uuid or device.uuid}"))


def verdict_words(advice: Advice) -> str:
    """Return what would fit, or why that is unknown."""
    if not advice.options:
        return f"{'no advice' if advice.reason == 'opted_out' else 'unknown'}: {advice.why}"
    option = advice.options[0]
    if option.verdict == "keep":
        return "what it holds"
    return "nothing: it never computed" if option.verdict == "release" else option.target


def coverage_words(advice: Advice) -> str:
    """Return the measured share of the window."""
    return f"{decimal(100 * advice.coverage, 0)} %"


def savings_lines(advices: Sequence[Advice]) -> Iterator[str]:
    """Yield what all advice together would free, of how much nothing is known, and what is not seen."""
    savings = savings_of(advices)
    if None not in savings[:3]:
        yield (
            f"Could be freed: {decimal(savings.freed, 2)} GPUs, as a mean over the windows. Of these "
            f"{decimal(savings.fits, 2)} would fit another holder; for {decimal(savings.unknown, 2)} that is "
            "unknown."
        )
    count = sum(savings.without.values())
    if count:
        reasons = sorted(savings.without.items(), key=lambda item: (-item[1], item[0]))
        words = [f"{number} {reason.replace('_', ' ')}" for reason, number in reasons[:_MOST_REASONS]]
        if len(reasons) > _MOST_REASONS:
            words.append("others")
        yield f"No advice on {plural(count, 'workload')}, which are in no total: {', '.join(words)}."
    yield _NO_PROCESSES


def advice_text(advice: ClusterAdvice, width: int | None = None) -> str:
    """Return a table for a terminal of ``width`` characters, with the totals below it."""
    lines = [f"! not known: {problem}" for problem in advice.problems]
    if advice.advices:
        rows = [_HEADINGS, *map(_row, workload_names(advice.advices), advice.advices)]
        lines += [*aligned(rows, width), "", *savings_lines(advice.advices)]
    else:
        lines.append("no workload held a slice in the last 7 days")
    return "\n".join(lines) + "\n"


def _row(holder: WorkloadName, advice: Advice) -> tuple[str, ...]:
    container = f"/{printable(advice.window.container)}" if advice.window.container else ""
    return (
        f"{holder.space}{holder.name}{container}",
        advice.now,
        verdict_words(advice),
        hundredths(advice.options[0].gpus_freed) if advice.options else UNKNOWN,
        duration(advice.window.span),
        coverage_words(advice),
        advice.confidence or UNKNOWN,
    )


def cluster_advice_json(advice: ClusterAdvice, price: float | None = None) -> dict[str, Any]:
    """Return the advice as JSON data; ``price`` is that of a GPU-hour."""
    return advice_document(advice.advices, advice.at, price) | {"problems": list(advice.problems)}
