"""Reading usage from Prometheus."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from exporter.concurrency import in_thread
from exporter.fleet.prometheus import Prometheus, PrometheusError
from exporter.fleet.queries import Answers, ask_whole
from exporter.fleet.targets import MissingSeriesError
from exporter.fleet.usage import queries
from exporter.fleet.usage.grouping import group_questions, read_groups
from exporter.fleet.usage.model import Balance, Usage, balance_of
from exporter.fleet.usage.period import DAY, HOUR, Period
from exporter.fleet.usage.queries import Piece
from exporter.fleet.usage.servers import ONE_SERVER, Servers, read_servers

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
    gpus, servers = await _known(prometheus, at, spans)
    if servers.shards:
        pieces, answers = await _balances(prometheus, at, days, servers)
    found = await ask_whole(prometheus, group_questions(by, spans, servers), at)

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


async def _known(prometheus: Prometheus, at: float, spans: Sequence[Piece]) -> tuple[int, Servers]:
    """Return the number of known GPUs, and the servers that recorded them."""
    questions = {"known GPUs": queries.known_gpus(spans), "Prometheus servers": queries.servers_of(spans)}
    found = await ask_whole(prometheus, questions, at)
    for name, why in found.problems.items():
        raise PrometheusError(f"{name}: {why}")
    gpus = found.samples("known GPUs")
    if not gpus:
        raise MissingSeriesError(f"the number of known GPUs is not recorded: {_NO_RECORDS}")
    return int(sum(sample.value for sample in gpus)), read_servers(found.samples("Prometheus servers"))


async def _balances(
    prometheus: Prometheus, at: float, days: Sequence[tuple[float, float]], servers: Servers = ONE_SERVER
) -> tuple[list[Piece], Answers]:
    """Return a piece for each day, and the balance of each; days without a record are read by hours."""
    pieces = {_name(day): _piece(day, at) for day in days}
    by_days = await ask_whole(prometheus, _questions(pieces, servers), at)
    again = {
        name: Piece("hours", piece.end, round((piece.end - piece.start) / HOUR))
        for name, piece in pieces.items()
        if piece.span == "days" and not by_days.samples(name)
    }
    by_hours = await ask_whole(prometheus, _questions(again, servers), at)
    problems = {**by_days.problems, **by_hours.problems}
    for name, why in problems.items():
        raise PrometheusError(f"balances of {name}: {why}")
    samples = {name: [*by_days.samples(name), *by_hours.samples(name)] for name in pieces}
    return [again.get(name, piece) for name, piece in pieces.items()], Answers(samples, {})


def _questions(pieces: Mapping[str, Piece], servers: Servers) -> dict[str, str]:
    return {name: queries.balances(piece, servers) for name, piece in pieces.items()}


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
