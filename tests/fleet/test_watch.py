"""Looking again and again at a Prometheus that fails in part, or is away."""

import time
from types import SimpleNamespace

import pytest

from exporter.fleet.cluster_model import IdleTotals
from exporter.fleet.read import Aim
from exporter.fleet.rendering import fleet_json, fleet_text
from exporter.fleet.watch import Watch
from exporter.prometheus import Prometheus
from tests.fleet.answering import Samples, answering, nodes, nothing

AIM = Aim(600, 3600)


class Clock:
    """A clock that a test turns."""

    now = 5000.0

    def __call__(self) -> float:
        """Tell the time."""
        return self.now


def _node(expression: str) -> Samples | str:
    return nodes(expression, "n1") or []


async def _watched(url: str, clock: Clock, *, times: int = 1) -> Watch:
    prometheus = Prometheus(url, deadline=5)
    watch = Watch(prometheus, AIM, interval=30, clock=clock)
    for _ in range(times):
        await watch.refresh()
    await prometheus.close()
    return watch


async def test_a_question_that_fails_costs_its_own_part() -> None:
    """The rest is told, and the problem is named."""

    def answer(expression: str) -> Samples | str:
        if "memory_used_bytes" in expression and expression.startswith("sum by (cluster"):
            return "query processing would load too many samples"
        if expression.startswith("sum by (cluster") and "gpuslice_node_gpus" in expression:
            return [({"job": "gpus", "instance": "n1:9836"}, 8.0)]
        if expression.startswith("count by (cluster") and "gpuslice_node_gpus" in expression:
            return [({"job": "gpus", "instance": "n1:9836"}, 1.0)]
        return _node(expression)

    with answering(answer) as url:
        fleet = (await _watched(url, Clock())).newest.fleet

    assert fleet is not None
    (node,) = fleet.nodes
    assert node.gpus.value == 8
    assert node.memory.used.value is None
    assert {name for name, _ in fleet.problems} == {"sum of memory used", "sum of memory wasted"}
    assert "too many samples" in fleet_text(fleet)
    assert fleet_json(fleet)["nodes"][0]["memory_bytes"]["used"] == {"value": None, "complete": False}


async def test_what_was_known_is_kept_while_prometheus_is_away() -> None:
    """The last good look stays with its age, the error and since when, until it is stale."""
    clock = Clock()
    with answering(_node) as url:
        prometheus = Prometheus(url, deadline=5)
        watch = Watch(prometheus, AIM, interval=30, clock=clock)
        await watch.refresh()
    clock.now += 60
    await watch.refresh()
    clock.now += 60
    await watch.refresh()
    look = watch.newest
    await prometheus.close()

    assert look.fleet is not None
    assert (look.read_at, look.failing_since) == (5000.0, 5060.0)
    assert look.error.startswith("Prometheus")
    assert (look.reads, look.failures) == (3, 2)
    clock.now += 600
    assert watch.newest.fleet is None
    assert watch.newest.failing_since == 5060.0


async def test_a_slow_prometheus_is_asked_more_seldom() -> None:
    """After a look it is left alone for longer than the look took, whatever interval was asked for."""

    def answer(expression: str) -> Samples | str:
        time.sleep(0.05)
        return _node(expression)

    with answering(answer) as url:
        prometheus = Prometheus(url, deadline=5)
        watch = Watch(prometheus, AIM, interval=0.01)
        await watch.refresh()
        await prometheus.close()

    assert watch.newest.seconds is not None
    assert watch.newest.interval == 3 * watch.newest.seconds > 0.15


async def test_memory_of_idle_holders_that_nobody_tells_is_not_zero() -> None:
    """Their number and compute are known, and a sum over rows that are not there is not 0."""

    def answer(expression: str) -> Samples | str:
        if expression.startswith("count(") and "last_active" in expression:
            return [({}, 2.0)]
        if expression.startswith("sum(") and "compute_entitled" in expression:
            return [({}, 0.5)]
        return _node(expression)

    with answering(answer) as url:
        fleet = (await _watched(url, Clock())).newest.fleet

    assert fleet is not None
    assert fleet.idle_totals == IdleTotals(2, None, 0.5)


async def test_nobody_idle_holds_nothing() -> None:
    """Where nobody is idle the sums are known: they are 0."""
    with answering(_node) as url:
        fleet = (await _watched(url, Clock())).newest.fleet

    assert fleet is not None
    assert fleet.idle_totals == IdleTotals(0, 0, 0)


async def test_a_prometheus_without_exporters_is_no_empty_cluster() -> None:
    """Nothing is said of a cluster whose nodes are not scraped."""
    with answering(nothing) as url:
        look = (await _watched(url, Clock())).newest

    assert look.fleet is None
    assert "does it scrape the nodes?" in look.error


class _Hours:
    """A Prometheus that tells GPU-hours of a namespace, or refuses a question for them."""

    def __init__(self) -> None:
        self.refused = ""
        self.seconds = 3600.0

    def __call__(self, expression: str) -> Samples | str:
        """Answer a question."""
        if "increase(" in expression:
            return "too many samples" if self.refused and self.refused in expression else self._of_ml()
        return [({"namespace": "ml"}, 1.0)] if expression.startswith("count by (names") else _node(expression)

    def _of_ml(self) -> Samples:
        return [({"namespace": "ml"}, self.seconds)]


def _hours(watch: Watch) -> tuple[float | None, float | None, int]:
    """Give the hours held and used that are shown, and how many questions failed."""
    fleet = watch.newest.fleet
    assert fleet is not None
    (namespace,) = fleet.namespaces or ()
    return namespace.hours.held.value, namespace.hours.used.value, len(fleet.problems)


async def test_gpu_hours_that_are_refused_are_asked_for_at_the_next_look() -> None:
    """A part that was answered is shown, and all of it as soon as Prometheus tells it."""
    hours = _Hours()
    hours.refused = "used_gpu_seconds"
    with answering(hours) as url:
        prometheus = Prometheus(url, deadline=5)
        watch = Watch(prometheus, AIM, interval=30)
        await watch.refresh()
        assert _hours(watch) == (1.0, None, 2)
        hours.refused = ""
        await watch.refresh()
        assert _hours(watch) == (1.0, 1.0, 0)
        await prometheus.close()


async def test_gpu_hours_from_before_stay_where_newer_ones_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last good ones are shown for a while, and then the refusal."""
    now = 1000.0
    monkeypatch.setattr("exporter.fleet.watch.time", SimpleNamespace(monotonic=lambda: now))
    hours = _Hours()
    with answering(hours) as url:
        prometheus = Prometheus(url, deadline=5)
        watch = Watch(prometheus, AIM, interval=30, clock=Clock())
        await watch.refresh()
        hours.refused, hours.seconds = "increase(", 7200.0
        now += 310
        await watch.refresh()
        assert _hours(watch) == (1.0, 1.0, 0)
        hours.refused = ""
        now += 30
        await watch.refresh()
        assert _hours(watch) == (2.0, 2.0, 0)
        hours.refused = "increase("
        now += 610
        await watch.refresh()
        assert _hours(watch) == (None, None, 3)
        await prometheus.close()


async def test_gpu_hours_are_asked_seldom() -> None:
    """They are much work, so that two looks ask for them once."""
    asked = []

    def answer(expression: str) -> Samples | str:
        asked.append(expression)
        return _node(expression)

    with answering(answer) as url:
        await _watched(url, Clock(), times=2)

    assert sum("increase(" in expression for expression in asked) == 3
    assert sum(expression.startswith("topk by") for expression in asked) == 2
