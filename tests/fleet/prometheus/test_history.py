"""The past of a node from a real Prometheus that scrapes a fake node."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import NamedTuple

import pytest
import pytest_asyncio

from exporter.demo.scenario.catalog import load
from exporter.fleet.prometheus import Prometheus
from exporter.fleet.prometheus.past_queries import PrometheusHistory, past_of, step_ending_at
from exporter.history import FIELDS, Ask, Wanted
from exporter.metrics import ENTITIES, FAMILIES, IDENTITY_LABELS, field_name
from tests.together.end_to_end.programs import prometheus
from tests.together.end_to_end.serving import Served, serving
from tests.waiting import wait_until_async

# Each needs the nodes and the Prometheus servers of ``watched``, which take seconds to start.
slow = pytest.mark.slow

# The labels that a scrape of a pod sets, as Prometheus Operator configures it.
TARGET = {"namespace": "monitoring", "pod": "gpuslice-x", "container": "exporter"}
SCRAPES = {
    "static": {},
    "operator": {
        "honor_labels": True,
        "relabel_configs": [{"target_label": name, "replacement": TARGET[name]} for name in TARGET],
    },
}
ALL_KINDS, MIG, MOVING = "showcase", "a100-mig-mixed", "h100-mixed"
# A scenario, how it is scraped, and by how many jobs.
WATCHED = {
    "static": (ALL_KINDS, "static", 1),
    "operator": (ALL_KINDS, "operator", 1),
    "two jobs": (MIG, "operator", 2),
    "moving": (MOVING, "operator", 2),
}
# Reaches back to before the first scrape, however long the tests before took.
LONG_AGO = Ask(span=1800, points=1801)
in_one_loop = pytest.mark.asyncio(loop_scope="module")


def expected_values(snapshot):
    """Return the known values of a snapshot: {(level, labels): {field: value}}."""
    expected = {}
    for level, fields in FIELDS.items():
        families = [family for family in FAMILIES if family.level == level and field_name(family) in fields]
        for entity in ENTITIES[level](snapshot):
            named = zip(entity.names, entity.values, strict=True)
            labels = tuple(sorted((k, v) for k, v in named if v and k in IDENTITY_LABELS[level]))
            values = {field_name(family): family.value(entity.row) for family in families}
            values = {name: value for name, value in values.items() if value is not None}
            if values:
                expected[level, labels] = values
    return expected


def newest_values(past):
    """Return the last known value of each field of each track, in the form of ``expected_values``."""
    newest = {}
    for track in past.tracks:
        labels = tuple(sorted((name, value) for name, value in track.labels.items() if value))
        assert (track.level, labels) not in newest
        assert all(len(values) == past.count for values in track.values.values())
        known = {
            name: [value for value in values if value is not None] for name, values in track.values.items()
        }
        newest[track.level, labels] = {name: values[-1] for name, values in known.items() if values}
    return newest


class Watched(NamedTuple):
    """A node, and its past in a Prometheus."""

    node: Served
    history: PrometheusHistory


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def watched(tmp_path_factory):
    """Yield a Prometheus for each way to scrape; all start at once, as each takes 5 s to begin."""
    async with AsyncExitStack() as running:
        # The driver's binding has one library: the node that is polled again must be opened last.
        nodes = {name: await running.enter_async_context(_polled(name)) for name in (ALL_KINDS, MIG, MOVING)}
        histories, clients = {}, []
        for name, (scenario, scrape, jobs) in WATCHED.items():
            names = {f"job-{number}": f"{nodes[scenario].url}/metrics" for number in range(jobs)}
            folder = tmp_path_factory.mktemp("prometheus")
            server = running.enter_context(prometheus(folder, names, scrape=SCRAPES[scrape]))
            client = Prometheus(server.url)
            running.push_async_callback(client.close)
            clients.append((client, jobs))
            node = nodes[scenario]
            history = PrometheusHistory(client, lambda node=node: node.poller.snapshot, finest=1.0)
            histories[name] = Watched(node, history)
        await asyncio.gather(*(_ready(client, jobs) for client, jobs in clients))
        yield histories


@asynccontextmanager
async def _polled(scenario):
    async with serving(load(scenario)) as node:
        await node.poll(0)
        await node.poll(15)
        yield node


async def _ready(client, jobs):
    async def ready():
        gpus = await client.query("count(count_over_time(gpuslice_gpu_up[1m])) or vector(0)")
        jobs_up = await client.query("count(up == 1) or vector(0)")
        return gpus[0].value and jobs_up[0].value == jobs

    await wait_until_async(ready, "all jobs have scraped the node")


@slow
@in_one_loop
@pytest.mark.parametrize("name", ["static", "operator", "two jobs"])
async def test_prometheus_returns_the_values_of_the_node(watched, name):
    """Every field comes back under our own labels, whatever labels a scrape sets, and once for two jobs."""
    node, history = watched[name]
    past = await history.read(LONG_AGO)
    assert (past.source, past.note, past.step) == ("prometheus", "", 1.0)
    expected, newest = expected_values(node.poller.snapshot), newest_values(past)
    assert newest.keys() == expected.keys()
    for entity, values in expected.items():
        assert newest[entity] == pytest.approx(values, rel=1e-9)
    # Nothing is known from before the first scrape.
    assert {values[0] for track in past.tracks for values in track.values.values()} == {None}


@slow
@in_one_loop
async def test_holders_and_the_rest_add_up_to_the_gpu_in_steps_in_which_pods_come_and_go(watched):
    node, history = watched["moving"]
    before = {row.holder for row in node.poller.snapshot.containers}

    async def past_with(pod):
        past = await history.read(Ask(span=240, points=2, wanted=Wanted(summing=True)))
        pods = {track.labels["pod"] for track in past.tracks if track.level == "container"}
        return past if pod in pods else None

    await node.poll(45)
    (came,) = {row.holder.pod for row in node.poller.snapshot.containers if row.holder not in before}
    await wait_until_async(lambda: past_with(came), "the pod that came is scraped")
    await node.poll(100)
    past = await past_with(came)
    for gpu in [track for track in past.tracks if track.level == "gpu"]:
        own = [track for track in past.tracks if track.labels["uuid"] == gpu.labels["uuid"]]
        parts = [track.values["memory_used_bytes"] for track in own if track.level == "container"]
        parts.append(gpu.values["unattributed_memory_bytes"])
        for used, *step in zip(gpu.values["memory_used_bytes"], *parts, strict=True):
            assert sum(filter(None, step)) == pytest.approx(used or 0, rel=1e-6)


@slow
@in_one_loop
async def test_levels_a_gpu_or_a_holder_can_be_read_alone(watched):
    """A holder without a container name means all containers of the pod."""
    node, history = watched["operator"]

    async def read(**wanted):
        return newest_values(await history.read(replace(LONG_AGO, wanted=Wanted(**wanted)))).keys()

    everything = expected_values(node.poller.snapshot).keys()
    gpu = node.poller.snapshot.gpus[1].identity.uuid
    row = node.poller.snapshot.containers[0].holder
    of_pod = {
        (level, labels)
        for level, labels in everything
        if level == "container" and {("namespace", row.namespace), ("pod", row.pod)} <= set(labels)
    }
    assert of_pod
    assert await read(levels=frozenset({"gpu"})) == {entity for entity in everything if entity[0] == "gpu"}
    assert await read(uuid=gpu) == {entity for entity in everything if ("uuid", gpu) in entity[1]}
    assert await read(holder=(row.namespace, row.pod, "")) == of_pod
    assert await read(holder=(row.namespace, row.pod, row.container)) <= of_pod
    assert await read(holder=(row.namespace, row.pod, "another")) == set()
    assert await read(holder=("another", row.pod, "")) == set()
    assert await read(uuid="GPU-of-another-node") == set()


@pytest.mark.parametrize(
    ("span", "points", "step", "count"),
    [
        (86400, 289, 300, 289),
        (86400, 240, 420, 207),
        (604800, 289, 2100, 289),
        (3600, 240, 60, 61),
        (60, 1, 60, 1),
    ],
)
def test_steps_are_whole_minutes_up_to_the_end(span, points, step, count):
    """There are no more than asked for, and they begin at multiples of their length."""
    end = 1_700_000_123.4
    past = past_of(span, end, points, 60.0)
    assert (past.step, past.count) == (step, count)
    assert past.start % past.step == 0
    assert past.end - past.step < end <= past.end
    assert past_of(span, end + 0.001, points, 60.0) == past
    ends = [past.start + number * step for number in (0, 1, count)]
    assert [step_ending_at(past, end) for end in ends] == [-1, 0, count - 1]
