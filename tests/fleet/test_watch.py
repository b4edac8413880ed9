"""Looking again and again at a Prometheus that fails in part, or is away."""

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from exporter.fleet import IdleTotals
from exporter.fleet.rendering import fleet_json, fleet_text
from exporter.fleet.targets import NodeLinks
from exporter.fleet.watch import Watch
from exporter.prometheus import Prometheus
from exporter.web.cluster import hub_openapi
from exporter.web.cluster.fleet_page import advice_table
from exporter.web.cluster.fleet_tables import Places
from exporter.web.cluster.routes import FleetPages
from tests.fleet.answering import Samples, answering, nodes, nothing

NOWHERE = Places((), NodeLinks())


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
    watch = Watch(prometheus, window=3600, interval=30, clock=clock)
    for _ in range(times):
        await watch.refresh()
    await prometheus.close()
    return watch


async def test_a_question_that_fails_costs_its_own_part() -> None:
    """The rest is told, and the problem is named."""

    def answer(expression: str) -> Samples | str:
        if expression == "node:gpuslice_used_bytes:sum":
            return "query processing would load too many samples"
        if "gpuslice_node_gpus" in expression:
            return [({"node": "n1"}, 8.0)]
        return _node(expression)

    with answering(answer) as url:
        fleet = (await _watched(url, Clock())).newest.fleet

    assert fleet is not None
    (node,) = fleet.nodes
    assert node.gpus.value == 8
    assert node.memory.used.value is None
    assert {name for name, _ in fleet.problems} == {"used bytes of nodes"}
    assert "too many samples" in fleet_text(fleet)
    assert fleet_json(fleet)["nodes"][0]["memory_bytes"]["used"] == {"value": None, "complete": False}


async def test_what_was_known_is_kept_while_prometheus_is_away() -> None:
    """The last good look stays with its age, the error and since when, until it is stale."""
    clock = Clock()
    with answering(_node) as url:
        prometheus = Prometheus(url, deadline=5)
        watch = Watch(prometheus, window=3600, interval=30, clock=clock)
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


async def _advice(watch: Watch) -> dict[str, Any]:
    """Return the advice that is shown as JSON, which is as it is described."""
    read = watch.newest.advice
    assert read.found is not None
    found: dict[str, Any] = json.loads(
        await FleetPages(lambda: watch.newest, NodeLinks()).advice(read, read.found, "json")
    )
    described = hub_openapi.document() | {"$ref": "#/components/schemas/ClusterAdvice"}
    Draft202012Validator(described).validate(found)
    return found


async def test_advice_is_kept_with_its_date_until_it_is_stale() -> None:
    """The page has the date of the last good answer and the error, and later the error alone."""
    clock = Clock()

    def refuse(expression: str) -> Samples | str:
        return "too many samples" if "gpuslice" in expression else []

    with answering(refuse) as url:
        prometheus = Prometheus(url, deadline=5)
        watch = Watch(prometheus, window=3600, interval=30, clock=clock)
        await watch.refresh_advice()
        good = await _advice(watch)
    assert watch.newest.advice.found is not None
    clock.now += 6 * 3600 + 1
    stale = watch.newest.advice
    clock.now -= 3600
    await watch.refresh_advice()
    clock.now += 60
    await watch.refresh_advice()
    old = watch.newest.advice
    kept = await _advice(watch)
    await prometheus.close()

    assert (stale.found, stale.error) == (None, "no newer answer has come")
    assert (good["error"], good["failing_since"]) == (None, None)
    assert (kept["error"], kept["failing_since"]) == (old.error, clock.now - 60)
    assert kept["timestamp"] == good["timestamp"]
    assert "This is the advice of 2023-11-14 22:13 UTC. A newer read failed: Prometheus" in (
        advice_table(old, NOWHERE).unknown
    )
    clock.now += 3600
    assert advice_table(watch.newest.advice, NOWHERE).unknown.startswith("Not known: Prometheus")


async def test_after_a_slow_refresh_the_pause_is_three_times_as_long() -> None:
    """Whatever the interval is, so that a slow Prometheus has time for others."""
    with answering(_node) as url:
        prometheus = Prometheus(url, deadline=60)
        watch = Watch(prometheus, window=3600, interval=0.0001)
        await watch.refresh()
        await prometheus.close()

    assert watch.newest.seconds is not None
    assert watch.newest.interval == 3 * watch.newest.seconds > 0


@pytest.mark.parametrize(
    ("told", "totals"),
    [
        ({"holders": 2.0}, IdleTotals(2, None)),
        ({"holders": 0.0, "gpus": 0.0}, IdleTotals(0, 0.0)),
        ({}, IdleTotals(None, None)),
    ],
    ids=["unknown compute", "no idle holder", "not measured"],
)
async def test_totals_of_idle_holders_that_nobody_tells_are_not_zero(told, totals) -> None:
    """They are 0 if no holder is idle, and unknown if idleness is not measured."""

    def answer(expression: str) -> Samples | str:
        for name, value in told.items():
            if expression == f"sum(node:gpuslice_idle_{name}:sum)":
                return [({}, value)]
        return _node(expression)

    with answering(answer) as url:
        fleet = (await _watched(url, Clock())).newest.fleet

    assert fleet is not None
    assert fleet.idle_totals == totals


async def test_a_prometheus_without_exporters_is_no_empty_cluster() -> None:
    """Nothing is said of a cluster whose nodes are not scraped."""
    with answering(nothing) as url:
        look = (await _watched(url, Clock())).newest

    assert look.fleet is None
    assert "does it scrape the nodes?" in look.error


async def test_gpu_hours_that_are_refused_are_not_known() -> None:
    """A part that was answered is shown, and all of it as soon as Prometheus tells it."""
    refused = "used_gpu_seconds"

    def answer(expression: str) -> Samples | str:
        if "sum_over_time(" in expression:
            return (
                "too many samples" if refused and refused in expression else [({"namespace": "ml"}, 3600.0)]
            )
        if expression == "namespace:gpuslice_known_containers:count":
            return [({"namespace": "ml", "value": "containers"}, 1.0)]
        return _node(expression)

    with answering(answer) as url:
        prometheus = Prometheus(url, deadline=5)
        watch = Watch(prometheus, window=3600, interval=30)
        await watch.refresh()
        assert _hours(watch) == (1.0, None, 1)
        refused = ""
        await watch.refresh()
        assert _hours(watch) == (1.0, 1.0, 0)
        await prometheus.close()


def _hours(watch: Watch) -> tuple[float | None, float | None, int]:
    """Give the hours held and used that are shown, and how many questions failed."""
    fleet = watch.newest.fleet
    assert fleet is not None
    (namespace,) = fleet.namespaces or ()
    return namespace.hours.held.value, namespace.hours.used.value, len(fleet.problems)
