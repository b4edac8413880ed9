"""Memory and compute that the pods of each namespace hold, use and waste."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from exporter.fleet import queries
from exporter.fleet.amounts import FAILED_AMOUNT, Amount, Share
from exporter.fleet.cluster_model import Namespace
from exporter.fleet.queries import COUNTED, SHARES, Answers, Narrow

_SUM, _COUNT = "{} of namespaces", "number of {} of namespaces"
_ROWS, _UNHELD = "containers of namespaces", "containers without a slice of namespaces"
_HOURS = "GPU-hours {}"
_SECONDS = 3600.0
# Prometheus extrapolates the increase of two counters over the same window a little differently.
_ALIKE = 0.999


def questions(narrow: Narrow) -> dict[str, str]:
    """Return the queries for the sums of each namespace."""
    by_namespace = narrow.by_namespace
    return {
        _ROWS: by_namespace("count", queries.ROWS),
        _UNHELD: by_namespace("count", queries.UNHELD),
        **{_SUM.format(name): by_namespace("sum", rows) for name, rows in SHARES.items()},
        **{_COUNT.format(name): by_namespace("count", rows) for name, rows in COUNTED.items()},
    }


def hours_questions(window: float) -> dict[str, str]:
    """Return the queries for GPU-hours over ``window`` seconds, which are expensive."""
    return {_HOURS.format(what): queries.gpu_seconds(what, window) for what in ("held", "used", "measured")}


def read_namespaces(answers: Answers, hours: Answers) -> tuple[Namespace, ...] | None:
    """Return each namespace; None if the list of namespaces could not be queried."""
    tables = {name: _table(answers, name) for name in questions(Narrow())}
    rows = tables[_ROWS]
    return None if rows is None else tuple(_namespaces(rows, tables, hours))


def _namespaces(
    rows: Mapping[str, float], tables: Mapping[str, "_Table"], hours: Answers
) -> Iterator[Namespace]:
    unheld = tables[_UNHELD]
    spent = {what: _table(hours, _HOURS.format(what)) for what in ("held", "used", "measured")}
    for name in sorted(rows):
        of_all = int(rows[name])
        held = None if unheld is None else of_all - int(unheld.get(name, 0))
        shares = [
            Share(
                *(
                    _amount(tables, f"{quantity}_{what}", name, of_all if what == "used" else held)
                    for what in Share._fields
                )
            )
            for quantity in ("memory", "compute")
        ]
        yield Namespace(
            name=name,
            holders=held,
            memory=shares[0],
            compute=shares[1],
            hours=_hours(spent, name),
        )


_Table = dict[str, float] | None


def _table(answers: Answers, name: str) -> _Table:
    if name in answers.problems:
        return None
    table: dict[str, float] = defaultdict(float)
    for sample in answers.samples(name):
        table[sample.labels.get("namespace", "")] += sample.value
    return table


def _amount(tables: Mapping[str, _Table], what: str, name: str, expected: int | None) -> Amount:
    sums, counts = tables[_SUM.format(what)], tables[_COUNT.format(what)]
    if sums is None or counts is None or expected is None:
        return FAILED_AMOUNT
    known = int(counts.get(name, 0))
    return Amount(sums.get(name, 0.0), known, max(expected - known, 0))


def _hours(spent: Mapping[str, _Table], name: str) -> Share:
    of_held, of_used, of_measured = spent["held"], spent["used"], spent["measured"]
    if of_held is None:
        return Share(FAILED_AMOUNT, FAILED_AMOUNT, FAILED_AMOUNT)
    held = of_held.get(name)
    if held is None:
        return Share()
    whole = Amount(held / _SECONDS, 1)
    if of_used is None or of_measured is None:
        return Share(whole, FAILED_AMOUNT, FAILED_AMOUNT)
    used, measured = of_used.get(name), of_measured.get(name)
    if used is None or measured is None:
        return Share(held=whole)
    missing = int(measured < held * _ALIKE)
    return Share(
        held=whole,
        used=Amount(used / _SECONDS, 1, missing),
        wasted=Amount(max(measured - used, 0.0) / _SECONDS, 1, missing),
    )
