"""All panels, records and alerts, asked of the same samples in places of several kinds."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.compat.answers import Answer, Told, all_answers, differs, differs_in_values, has_less
from tests.compat.places import Stored, doubled, prometheus, stored, stretched, victoria_metrics
from tests.dashboards.scene import scene
from tests.deploy.tools import tool

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

STRETCH = 20
"""Nodes are scraped every 2 s for 40 s: rates look further back."""
COUNTED = re.compile(r"\b(rate|increase)\(")
TWICE = {"tenant: Energy A", "tenant: Power A"}
"""Sums that replicas double: with the labels of a container in them they would be too long to be read."""


def exactly(own: Told, other: Answer) -> str:
    """Say how an answer differs."""
    return differs(own.answer, other)


class Samples(NamedTuple):
    """Samples of nodes of many kinds, and the answers of Prometheus 2 to all queries at the end of them."""

    now: float
    series: Sequence[Stored]
    answers: list[Told]

    def wrong(self, others: list[Told], counted: Callable[[Told, Answer], str] = exactly) -> dict[str, str]:
        """Tell where a place differs, by what asks; of what is an increase or a rate as ``counted`` says."""
        found = {}
        for own, other in zip(self.answers, others, strict=True):
            if "topk(" in own.expr:
                # Which of equal ones are the largest, each place decides by itself.
                difference = differs_in_values(own.answer, other.answer)
            elif COUNTED.search(own.expr):
                difference = counted(own, other.answer)
            else:
                difference = differs(own.answer, other.answer)
            if difference:
                found[own.name] = difference
        return found


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    """Scrape the nodes once for all tests."""
    programs = tool("prometheus"), tool("promtool")
    folder = tmp_path_factory.mktemp("samples")
    with scene(folder) as seen:
        series = stretched(stored(seen.server, seen.now, 600), seen.now, STRETCH)
        now = seen.now
    with prometheus(folder / "prometheus", *programs, series) as server:
        return Samples(now, series, list(all_answers(server, now)))


def test_most_queries_have_an_answer(samples: Samples) -> None:
    """What is compared is not empty."""
    assert len(samples.answers) > 300
    assert sum(bool(told.answer.series) for told in samples.answers) > 0.8 * len(samples.answers)


def test_prometheus_3_answers_the_same(samples: Samples, tmp_path: Path) -> None:
    """It leaves out the sample at the beginning of a range, and extrapolates less before the first one."""

    def nearly(own: Told, other: Answer) -> str:
        # Before a counter's first sample Prometheus 2 goes back by up to 1.1 times the time between two
        # samples, and Prometheus 3 by half of it: with two samples in the range 1.5 of 2.1.
        return differs(own.answer, other, tolerance=0.3)

    programs = tool("prometheus-3"), tool("promtool-3")
    with prometheus(tmp_path / "prometheus", *programs, samples.series) as server:
        assert samples.wrong(list(all_answers(server, samples.now)), nearly) == {}


def test_what_replicas_store_counts_once(samples: Samples, tmp_path: Path) -> None:
    """With each series of two replicas no query fails, and answers have another label at most."""
    programs = tool("prometheus"), tool("promtool")
    with prometheus(tmp_path / "prometheus", *programs, doubled(samples.series)) as server:
        wrong = samples.wrong(list(all_answers(server, samples.now)))

    assert wrong.keys() == TWICE, wrong


def test_victoria_metrics_answers_the_same(samples: Samples, tmp_path: Path) -> None:
    """It does not extrapolate, and leaves out series that are NaN, such as a row that says "none"."""

    def roughly(own: Told, other: Answer) -> str:
        # Prometheus adds up to 1.1 times the time between two samples at each end: a fifth with ten of them.
        # Of a counter that began within the range VictoriaMetrics takes the first value too, so it has more.
        return has_less(own.answer, other, tolerance=0.3 if "increase(" in own.expr else 1.0)

    with victoria_metrics(tmp_path / "victoria", tool("victoria-metrics"), samples.series) as server:
        others = list(all_answers(server, samples.now))
    known = samples._replace(answers=[told.without_nan() for told in samples.answers])
    assert known.wrong(others, roughly) == {}
