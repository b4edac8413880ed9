"""Answers of databases to the same queries, and how they differ."""

import math
from collections.abc import Container, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from tests.product.alerts.committed import committed_rules
from tests.product.compat.places import REPLICA
from tests.product.dashboards.answers import EVERYTHING, FILES, Labels
from tests.product.dashboards.grafana import Series, Window, ask, choose, panels
from tests.together.end_to_end.programs import Prometheus

LENGTH, STEP = 800, 80
"""Seconds of a timeline: about the time of the samples."""
EXACT = 1e-9
CLOCK = 1e-5
"""Seconds: VictoriaMetrics stores about 15 digits of a time."""
Values: TypeAlias = Mapping[float, float]


class Answer(NamedTuple):
    """The series of an answer by labels without that of a replica; ``clashes`` differ by that label only."""

    series: dict[Labels, Values]
    clashes: int


class Told(NamedTuple):
    """A panel, record or alert, its expression, and the answer."""

    name: str
    expr: str
    answer: Answer

    def without_nan(self) -> "Told":
        """Return it without series whose values are all NaN."""
        series = {
            labels: values
            for labels, values in self.answer.series.items()
            if not all(map(math.isnan, values.values()))
        }
        return self._replace(answer=self.answer._replace(series=series))


def all_answers(server: Prometheus, now: float) -> Iterator[Told]:
    """Yield the answers to all panels, records and alerts."""
    for name, board in FILES.items():
        variables = choose(board, server, Window(now, LENGTH, STEP), EVERYTHING)
        for panel in panels(board):
            for target in panel.get("targets") or ():
                answer = told_once(ask(target, variables, server))
                yield Told(f"{name}: {panel['title']} {target['refId']}", target["expr"], answer)
    rules = committed_rules()
    alerts = {name: alert["expr"] for name, alert in rules.alerts.items()}
    for name, expr in (rules.records | alerts).items():
        found = server.api("query", query=expr, time=str(now))["result"]
        # VictoriaMetrics keeps the name of a series in some functions; a rule replaces it.
        series = [
            Series(
                {key: value for key, value in each["metric"].items() if key != "__name__"},
                {each["value"][0]: float(each["value"][1])},
            )
            for each in found
        ]
        yield Told(name, expr, told_once(series))


def told_once(found: list[Series]) -> Answer:
    """Return an answer without the label of the replica; equal series are one."""
    series: dict[Labels, Values] = {}
    clashes = 0
    for each in found:
        labels = frozenset((key, value) for key, value in each.labels.items() if key != REPLICA)
        clashes += labels in series and not same(series[labels], each.values)
        series[labels] = each.values
    return Answer(series, clashes)


def same(left: Values, right: Values, tolerance: float = EXACT) -> bool:
    """Return whether values and times are equal; NaN is equal to itself."""
    return left.keys() == right.keys() and all(
        math.isclose(left[at], right[at], rel_tol=tolerance, abs_tol=CLOCK)
        or (math.isnan(left[at]) and math.isnan(right[at]))
        for at in left
    )


def without(answer: Answer, names: Container[str]) -> Answer:
    """Return an answer whose series lack some labels."""
    series = {
        frozenset((name, value) for name, value in labels if name not in names): values
        for labels, values in answer.series.items()
    }
    assert len(series) == len(answer.series)
    return answer._replace(series=series)


def differs(left: Answer, right: Answer, tolerance: float = EXACT) -> str:
    """Return how the right answer differs from the left, "" if it does not."""
    if right.clashes:
        return f"{right.clashes} series of replicas differ"
    if left.series.keys() != right.series.keys():
        more, less = right.series.keys() - left.series.keys(), left.series.keys() - right.series.keys()
        return f"{len(more)} more and {len(less)} fewer series: {[dict(each) for each in (*more, *less)][:2]}"
    for labels, values in left.series.items():
        if not same(values, right.series[labels], tolerance):
            return f"{dict(labels)}: {right.series[labels]} and not {values}"
    return ""


def has_less(left: Answer, right: Answer, tolerance: float) -> str:
    """Return how the right series differ, or that their sum at the end is less; "" if neither."""
    if left.series.keys() != right.series.keys():
        return differs(left, right)
    sums = [sum(_last(each)) for each in (left, right)]
    return "" if sums[1] >= sums[0] * (1 - tolerance) else f"the sum is {sums[1]} and not {sums[0]}"


def differs_in_values(left: Answer, right: Answer) -> str:
    """Return how the values at the end differ, whatever their series; "" if they do not."""
    own, other = (sorted(_last(each)) for each in (left, right))
    equal = len(own) == len(other) and all(map(math.isclose, own, other))
    return "" if equal else f"{other} and not {own}"


def _last(answer: Answer) -> list[float]:
    return [values[max(values)] for values in answer.series.values()]
