"""Reading usage from Prometheus."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from exporter.concurrency import in_thread
from exporter.fleet.owners import owner_questions, owners_above, workload_of
from exporter.fleet.prometheus import Prometheus, PrometheusError, Sample
from exporter.fleet.queries import Answers, ask
from exporter.fleet.targets import MissingSeriesError
from exporter.fleet.usage import queries
from exporter.fleet.usage.model import VALUES, Balance, Group, Kind, Quantities, Usage, balance_of
from exporter.fleet.usage.period import DAY, HOUR, Period
from exporter.fleet.usage.queries import Groups, Piece
from exporter.metrics.holders import label_names

GROUPS = ("namespace", "owner", "model", "node")
_LABEL = re.compile(r"label:([A-Za-z0-9./_-]+)")
_OF_GROUPS = "usage by"
# A day is recorded every 4 hours from the second hour after it on.
_DAY_RECORDED_AFTER = 6 * HOUR
_NO_RECORDS = (
    "this Prometheus has no records of usage in that time: load alerts/rules/gpuslice-recording.yaml (see "
    "docs/recording-rules.md); new rules have the first full hour after one to two hours"
)


def parse_by(text: str) -> str:
    """Return what usage is summed by; raises ValueError."""
    if text not in GROUPS and not _LABEL.fullmatch(text):
        raise ValueError(f"one of {', '.join(GROUPS)}, or label:NAME with a label of pods such as label:team")
    return text


def groups_by(by: str) -> Groups:
    """Return the labels that usage is summed by."""
    if by == "owner":
        return queries.by_owner()
    if label := _LABEL.fullmatch(by):
        return queries.by_label(label_names((label[1],))[0])
    return Groups((by,) if by == "model" else ("cluster", by))


async def read_usage(prometheus: Prometheus, at: float, period: Period, by: str) -> Usage:
    """Return the usage of a period.

    Raises PrometheusError if the balances cannot be read, and MissingSeriesError without records.
    """
    days = list(period.days())
    pieces, answers = await _balances(prometheus, at, days)
    if not any(answers.samples(_name(day)) for day in days):
        raise MissingSeriesError(_NO_RECORDS)
    spans, groups = queries.merged(pieces), groups_by(by)
    questions = {"known GPUs": queries.known_gpus(spans)} | {
        f"{_OF_GROUPS} {by}, part {number}": query
        for number, query in enumerate(query for span in spans for query in queries.grouped(span, groups))
    }
    if by == "owner":
        questions |= owner_questions()
    found = await ask(prometheus, questions, at)
    if "known GPUs" in found.problems:
        raise PrometheusError(f"known GPUs: {found.problems['known GPUs']}")
    gpus = int(sum(sample.value for sample in found.samples("known GPUs")))

    def put_together() -> Usage:
        of_days = tuple(_balance(answers, (day,), gpus) for day in days)
        failed = [name for name in questions if name in found.problems]
        known = not any(name.startswith(_OF_GROUPS) for name in failed)
        return Usage(
            at=at,
            period=period,
            by=by,
            gpus=gpus,
            balance=_balance(answers, days, gpus),
            days=of_days,
            groups=tuple(_groups(found, questions, groups)) if known else None,
            problems=tuple(f"{name}: {found.problems[name]}" for name in failed),
        )

    return await in_thread(put_together)


async def _balances(
    prometheus: Prometheus, at: float, days: Sequence[tuple[float, float]]
) -> tuple[list[Piece], Answers]:
    """Return a piece for each day, and the balance of each; days without a record are read by hours."""
    pieces = {_name(day): _piece(day, at) for day in days}
    by_days = await ask(prometheus, {name: queries.balances(piece) for name, piece in pieces.items()}, at)
    again = {
        name: Piece("hours", piece.end, round((piece.end - piece.start) / HOUR))
        for name, piece in pieces.items()
        if piece.span == "days" and not by_days.samples(name)
    }
    by_hours = await ask(prometheus, {name: queries.balances(piece) for name, piece in again.items()}, at)
    problems = {**by_days.problems, **by_hours.problems}
    for name, why in problems.items():
        raise PrometheusError(f"balances of {name}: {why}")
    samples = {name: [*by_days.samples(name), *by_hours.samples(name)] for name in pieces}
    return [again.get(name, piece) for name, piece in pieces.items()], Answers(samples, {})


def _piece(day: tuple[float, float], at: float) -> Piece:
    start, end = day
    if end - start == DAY and at >= end + _DAY_RECORDED_AFTER:
        return Piece("days", end, 1)
    return Piece("hours", end, round((end - start) / HOUR))


def _name(day: tuple[float, float]) -> str:
    return f"{day[0]:.0f}"


def _balance(answers: Answers, days: Sequence[tuple[float, float]], gpus: int) -> Balance:
    values: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for day in days:
        for sample in answers.samples(_name(day)):
            values[sample.text("value")][sample.text("class")] += sample.value
    return balance_of(
        start=days[0][0],
        end=days[-1][1],
        gpus=gpus,
        allocation=values["allocation"],
        use=values["use"],
        overcommitted=values["overcommitted"][""],
    )


def _groups(found: Answers, questions: Iterable[str], groups: Groups) -> Iterator[Group]:
    labels = (*groups.kept, *groups.labels)
    samples = [sample for name in questions if name.startswith(_OF_GROUPS) for sample in found.samples(name)]
    rows: dict[str, dict[Kind, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    several = len({sample.text("cluster") for sample in samples}) > 1
    above = owners_above(found)
    for sample in samples:
        values = rows[_group_name(sample, labels, several, above)][Kind(*sample.texts("model", "profile"))]
        values[sample.text("value")] = values.get(sample.text("value"), 0.0) + sample.value
    made = [Group(name=name, kinds=dict(_quantities(kinds))) for name, kinds in rows.items()]
    # What has no name comes last, whatever it held.
    yield from sorted(made, key=lambda group: (not group.name, -(group.total.held or 0.0), group.name))


def _quantities(kinds: Mapping[Kind, Mapping[str, float]]) -> Iterator[tuple[Kind, Quantities]]:
    for kind, values in kinds.items():
        yield kind, Quantities(*(values.get(value) for value in VALUES))


def _group_name(
    sample: Sample,
    labels: Sequence[str],
    several: bool,
    above: Mapping[tuple[str, ...], tuple[str, str]],
) -> str:
    """Return the name of a group; that of a cluster is part of it if there are several."""
    if labels[-2:] == queries.OWNER:
        cluster, namespace, kind, name = sample.texts("cluster", "namespace", *queries.OWNER)
        owner = workload_of(above, cluster, namespace, kind, name)
        parts = [namespace, f"{owner[1]} ({owner[0]})"] if owner else [f"{namespace} (no known owner)"]
    else:
        cluster, parts = sample.text("cluster"), [sample.text(labels[-1])]
    prefix = [cluster] if several and cluster and "cluster" in labels else []
    return "/".join((*prefix, *parts)) if any(parts) else ""
