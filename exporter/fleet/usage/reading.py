"""Reading usage from Prometheus."""

from collections import defaultdict
from collections.abc import Sequence

from exporter.concurrency import in_thread
from exporter.fleet.prometheus import Prometheus, PrometheusError
from exporter.fleet.queries import Answers, ask
from exporter.fleet.targets import MissingSeriesError
from exporter.fleet.usage import queries
from exporter.fleet.usage.grouping import group_questions, read_groups
from exporter.fleet.usage.model import Balance, Usage, balance_of
from exporter.fleet.usage.period import DAY, HOUR, Period
from exporter.fleet.usage.queries import Piece

# A day is recorded every 4 hours from the second hour after it on.
_DAY_RECORDED_AFTER = 6 * HOUR
_NO_GROUPS = "its records are missing: load all groups of alerts/rules/gpuslice-recording.yaml"
_NO_RECORDS = (
    "this Prometheus has no records of usage in that time: load alerts/rules/gpuslice-recording.yaml (see "
    "docs/recording-rules.md); new rules have the first full hour after one to two hours"
)


async def read_usage(prometheus: Prometheus, at: float, period: Period, by: str) -> Usage:
    """Return the usage of a period.

    Raises PrometheusError if the balances cannot be read, and MissingSeriesError without records.
    """
    days = list(period.days())
    pieces, answers = await _balances(prometheus, at, days)
    if not any(answers.samples(_name(day)) for day in days):
        raise MissingSeriesError(_NO_RECORDS)
    spans = queries.merged(pieces)
    of_groups = group_questions(by, spans)
    questions = {"known GPUs": queries.known_gpus(spans)} | of_groups
    found = await ask(prometheus, questions, at)
    if "known GPUs" in found.problems:
        raise PrometheusError(f"known GPUs: {found.problems['known GPUs']}")
    if not found.samples("known GPUs"):
        raise MissingSeriesError(f"the number of known GPUs is not recorded: {_NO_RECORDS}")
    gpus = int(sum(sample.value for sample in found.samples("known GPUs")))

    def put_together() -> Usage:
        of_days = tuple(_balance(answers, (day,), gpus) for day in days)
        balance, groups = _balance(answers, days, gpus), read_groups(by, found)
        problems = [f"{name}: {why}" for name, why in found.problems.items()]
        if balance.allocation.get("held") and not groups and not problems:
            problems.append(f"usage by {by}: {_NO_GROUPS}")
        return Usage(
            at=at,
            period=period,
            by=by,
            gpus=gpus,
            balance=balance,
            days=of_days,
            groups=None if problems else groups,
            problems=tuple(problems),
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
