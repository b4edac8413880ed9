"""Reading a Prometheus again and again that fails in part, or is away."""

import json
import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from exporter.fleet.json_data import fleet_json
from exporter.fleet.pages import openapi as hub_openapi
from exporter.fleet.pages.links import Links, NodeUrl
from exporter.fleet.pages.page import advice_table
from exporter.fleet.pages.routes import FleetPages
from exporter.fleet.prometheus import Prometheus
from exporter.fleet.text import fleet_text
from exporter.fleet.watch import FleetRead, Watch
from tests.fleet.answering import HOURS, Answer, Samples, answering, connected, nothing, of_node

NOWHERE = Links((), NodeUrl())


class Clock:
    now = 5000.0

    def __call__(self) -> float:
        return self.now


def _watch(prometheus: Prometheus, **options: Any) -> Watch:
    return Watch(prometheus, window=3600, **({"interval": 30} | options))


async def _read(answer: Answer) -> FleetRead:
    async with connected(answer) as prometheus:
        watch = _watch(prometheus)
        await watch.refresh()
    return watch.newest


async def test_a_query_that_fails_costs_its_own_values() -> None:
    def answer(expression: str) -> Samples | str:
        if expression == "node:gpuslice_used_bytes:sum":
            return "query processing would load too many samples"
        if "gpuslice_node_gpus" in expression:
            return [({"node": "n1"}, 8.0)]
        return of_node({})(expression)

    fleet = (await _read(answer)).fleet

    assert fleet is not None
    (node,) = fleet.nodes
    assert node.gpus.value == 8
    assert node.memory.used.value is None
    assert {name for name, _ in fleet.problems} == {"used bytes of nodes"}
    assert "too many samples" in fleet_text(fleet)
    assert fleet_json(fleet)["nodes"][0]["memory_bytes"]["used"] == {"value": None, "complete": False}


async def test_the_last_answer_is_kept_with_its_date_until_it_is_stale() -> None:
    clock = Clock()
    with answering(of_node({})) as url:
        prometheus = Prometheus(url, deadline=60)
        watch = _watch(prometheus, clock=clock)
        await watch.refresh()
    for _ in range(2):
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
    """Return the advice as JSON, which follows its schema."""
    read = watch.newest.advice
    assert read.found is not None
    document: dict[str, Any] = json.loads(
        await FleetPages(lambda: watch.newest, NodeUrl()).advice(read, read.found, "json")
    )
    schema = hub_openapi.document() | {"$ref": "#/components/schemas/ClusterAdvice"}
    Draft202012Validator(schema).validate(document)
    return document


async def test_advice_is_kept_with_its_date_until_it_is_stale() -> None:
    """The page has the date of the last answer and the error, and later only the error."""
    clock = Clock()

    def refuse(expression: str) -> Samples | str:
        return "too many samples" if "gpuslice" in expression else []

    with answering(refuse) as url:
        prometheus = Prometheus(url, deadline=60)
        watch = _watch(prometheus, clock=clock)
        await watch.refresh_advice()
        good = await _advice(watch)
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


async def test_the_pause_after_a_read_is_at_least_three_times_its_duration() -> None:
    """So a slow Prometheus has time for others, whatever the interval is."""
    async with connected(of_node({})) as prometheus:
        watch = _watch(prometheus, interval=0.0001)
        await watch.refresh()

    assert watch.newest.seconds is not None
    assert watch.newest.interval == 3 * watch.newest.seconds > 0


@pytest.mark.parametrize(
    ("records", "totals"),
    [
        ({"holders": 2.0}, (2, None, False)),
        ({"holders": 0.0, "gpus": 0.0}, (0, 0.0, True)),
        ({}, (None, None, False)),
    ],
    ids=["unknown compute", "no idle holder", "not measured"],
)
async def test_totals_of_idle_holders_without_a_record_are_unknown(records, totals) -> None:
    here = {"node": "n1"}
    queries: dict[str, Samples] = {
        "node:gpuslice_containers:count": [(here, 2.0)],
        "node:gpuslice_known_gpus:count": [({**here, "value": "holders"}, 1.0)],
        "max by (cluster, node) (gpuslice_node_gpus)": [(here, 1.0)],
        "node:gpuslice_holders:sum": [(here, 2.0)],
        "node:gpuslice_known_containers:count": [
            ({**here, "value": value}, 2.0) for value in ("holders", *(f"idle_{name}" for name in records))
        ],
        **{f"node:gpuslice_idle_{name}:sum": [(here, value)] for name, value in records.items()},
    }

    fleet = (await _read(of_node({re.escape(query): rows for query, rows in queries.items()}))).fleet

    assert fleet is not None
    idle = fleet.total
    assert (idle.idle_holders.value, idle.idle_compute.value, fleet.idle_complete) == totals


async def test_a_prometheus_without_exporters_is_an_error() -> None:
    look = await _read(nothing)

    assert look.fleet is None
    assert "does it scrape the nodes?" in look.error


async def test_refused_gpu_hours_are_unknown_until_they_are_answered() -> None:
    refused = "used_gpu_seconds"

    def answer(expression: str) -> Samples | str:
        if refused and re.match(rf"sum by .*{refused}", expression):
            return "too many samples"
        return of_node(HOURS)(expression)

    async with connected(answer) as prometheus:
        watch = _watch(prometheus)
        await watch.refresh()
        assert _hours(watch) == (1.0, None, 1)
        refused = ""
        await watch.refresh()
        assert _hours(watch) == (1.0, 1.0, 0)


def _hours(watch: Watch) -> tuple[float | None, float | None, int]:
    """Return the GPU-hours held and used, and the number of failed queries."""
    fleet = watch.newest.fleet
    assert fleet is not None
    (namespace,) = fleet.namespaces or ()
    return namespace.hours.held.value, namespace.hours.used.value, len(fleet.problems)
