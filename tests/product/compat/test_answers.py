"""Queries of all panels, records and alerts on the same samples in several databases."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.product.compat.answers import (
    Answer,
    Told,
    all_answers,
    differs,
    differs_in_values,
    has_less,
    without,
)
from tests.product.compat.places import Stored, doubled, prometheus, stored, stretched, victoria_metrics
from tests.product.dashboards.scene import scene
from tests.tools import tool

pytestmark = [pytest.mark.slow, pytest.mark.tools, pytest.mark.timeout(1800)]

STRETCH = 20
"""Nodes are scraped every 2 s for 40 s; the ranges of rates are longer."""
COUNTED = re.compile(r"\b(rate|increase)\(")
TWICE = {"tenant: Energy A", "tenant: Power A"}
"""Sums that replicas double: without that, the queries would be too long to read."""
CHOSEN = {"container:gpuslice_held_seconds:increase1h": {"model", "sharing", "isolation"}}
"""Labels of records that ``topk`` takes from one of some equal series: each database chooses by itself."""


def exactly(own: Told, other: Answer) -> str:
    """Return how an answer differs, "" if it does not."""
    return differs(own.answer, other)


def comparable(told: Told) -> Told:
    """Return an answer without labels that may differ by choice."""
    return told._replace(answer=without(told.answer, CHOSEN.get(told.name, ())))


class Samples(NamedTuple):
    """Samples of many kinds of nodes, and the answers of Prometheus 2 to all queries at their end."""

    now: float
    series: Sequence[Stored]
    answers: list[Told]

    def wrong(self, others: list[Told], counted: Callable[[Told, Answer], str] = exactly) -> dict[str, str]:
        """Return how the answers of a database differ; ``counted`` compares increases and rates."""
        differences = {}
        for own, other in zip(map(comparable, self.answers), map(comparable, others), strict=True):
            if "topk(" in own.expr:
                # Which of equal values are the largest, each database decides by itself.
                difference = differs_in_values(own.answer, other.answer)
            elif COUNTED.search(own.expr):
                difference = counted(own, other.answer)
            else:
                difference = differs(own.answer, other.answer)
            if difference:
                differences[own.name] = difference
        return differences


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    programs = tool("prometheus"), tool("promtool")
    folder = tmp_path_factory.mktemp("samples")
    with scene(folder) as seen:
        series = stretched(stored(seen.server, seen.now, 600), seen.now, STRETCH)
        now = seen.now
    with prometheus(folder / "prometheus", *programs, series) as server:
        return Samples(now, series, list(all_answers(server, now)))


def test_most_queries_have_an_answer(samples: Samples) -> None:
    assert len(samples.answers) > 300
    assert sum(bool(each.answer.series) for each in samples.answers) > 0.8 * len(samples.answers)


def test_prometheus_3_answers_the_same(samples: Samples, tmp_path: Path) -> None:
    """It ignores the sample at the beginning of a range, and extrapolates less before the first one."""

    def nearly(own: Told, other: Answer) -> str:
        # Before a counter's first sample Prometheus 2 goes back by up to 1.1 times the time between two
        # samples, and Prometheus 3 by half of it: with two samples in the range 1.5 of 2.1.
        return differs(own.answer, other, tolerance=0.3)

    programs = tool("prometheus-3"), tool("promtool-3")
    with prometheus(tmp_path / "prometheus", *programs, samples.series) as server:
        assert samples.wrong(list(all_answers(server, samples.now)), nearly) == {}


def test_what_replicas_store_counts_once(samples: Samples, tmp_path: Path) -> None:
    """With each series from two replicas no query fails; answers may have another label."""
    programs = tool("prometheus"), tool("promtool")
    with prometheus(tmp_path / "prometheus", *programs, doubled(samples.series)) as server:
        wrong = samples.wrong(list(all_answers(server, samples.now)))

    assert wrong.keys() == TWICE, wrong


def test_victoria_metrics_answers_the_same(samples: Samples, tmp_path: Path) -> None:
    """It does not extrapolate, and leaves out series that are NaN."""

    def roughly(own: Told, other: Answer) -> str:
        # Prometheus adds up to 1.1 times the time between two samples at each end: a fifth with ten of them.
        # VictoriaMetrics counts the first value of a counter that began within the range, so it has more.
        return has_less(own.answer, other, tolerance=0.3 if "increase(" in own.expr else 1.0)

    with victoria_metrics(tmp_path / "victoria", tool("victoria-metrics"), samples.series) as server:
        others = list(all_answers(server, samples.now))
    known = samples._replace(answers=[each.without_nan() for each in samples.answers])
    assert known.wrong(others, roughly) == {}
