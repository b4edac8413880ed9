"""The past of a node as a real Prometheus has it, which scrapes the real program on a fake node."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

import pytest
import pytest_asyncio

from exporter.demo.scenario.catalog import load
from exporter.history import FIELDS, Ask, Wanted
from exporter.metrics import ENTITIES, FAMILIES, IDENTITY_LABELS, field_name
from exporter.prometheus import Prometheus
from exporter.prometheus.past_queries import PrometheusHistory, past_of, step_ending_at
from tests.end_to_end.programs import prometheus
from tests.end_to_end.serving import Served, serving
from tests.waiting import wait_until_async

# Each needs the nodes and the three Prometheus of ``watched``, which take seconds to start.
slow = pytest.mark.slow

# What a scrape of a pod has for its own, as an operator sets it up.
TARGET = {"namespace": "monitoring", "pod": "gpuslice-x", "container": "exporter"}
SCRAPES = {
    "static": {},
    "operator": {
        "honor_labels": True,
        "relabel_configs": [{"target_label": name, "replacement": TARGET[name]} for name in TARGET],
    },
}
# What is looked at, what is cut, and where somebody comes and goes.
SHOWN, CUT, MOVING = "showcase", "a100-mig-mixed", "h100-mixed"
# A scenario, how it is scraped, and by how many jobs.
WATCHED = {name: (SHOWN, name, 1) for name in SCRAPES} | {
    "two jobs": (CUT, "operator", 2),
    "moving": (MOVING, "operator", 2),
}
in_one_loop = pytest.mark.asyncio(loop_scope="module")


def known(snapshot):
    """Give what a snapshot says of each thing: {(level, labels): {field: value}}, without what is unknown."""
    found = {}
    for level, fields in FIELDS.items():
        families = [family for family in FAMILIES if family.level == level and field_name(family) in fields]
        for entity in ENTITIES[level](snapshot):
            told = zip(entity.names, entity.values, strict=True)
            labels = tuple(sorted((k, v) for k, v in told if v and k in IDENTITY_LABELS[level]))
            values = {field_name(family): family.value(entity.row) for family in families}
            told = {name: value for name, value in values.items() if value is not None}
            if told:
                found[level, labels] = told
    return found


def newest(past):
    """Give the last known value of each field of each track, in the form of ``known``."""
    found = {}
    for track in past.tracks:
        labels = tuple(sorted((name, value) for name, value in track.labels.items() if value))
        assert (track.level, labels) not in found
        assert all(len(values) == past.count for values in track.values.values())
        told = {
            name: [value for value in values if value is not None][-1]
            for name, values in track.values.items()
            if any(value is not None for value in values)
        }
        found[track.level, labels] = told
    return found


class Watched(NamedTuple):
    """A node, and its past as a Prometheus has it."""

    node: Served
    history: PrometheusHistory


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def watched(tmp_path_factory):
    """Have a Prometheus of its own for each way to scrape; all start at once, as each takes 5 s to begin."""
    async with AsyncExitStack() as running:
        # The driver's binding knows one library: whoever polls again must have opened its node last.
        nodes = {name: await running.enter_async_context(_polled(name)) for name in (SHOWN, CUT, MOVING)}
        found, clients = {}, []
        for name, (scenario, scrape, jobs) in WATCHED.items():
            names = {f"job-{number}": f"{nodes[scenario].url}/metrics" for number in range(jobs)}
            folder = tmp_path_factory.mktemp("prometheus")
            server = running.enter_context(prometheus(folder, names, scrape=SCRAPES[scrape]))
            client = Prometheus(server.url)
            running.push_async_callback(client.close)
            clients.append((client, jobs))
            found[name] = Watched(nodes[scenario], _history(client, nodes[scenario]))
        await asyncio.gather(*(_ready(client, jobs) for client, jobs in clients))
        yield found


@asynccontextmanager
async def _polled(scenario):
    async with serving(load(scenario)) as node:
        await node.poll(0)
        await node.poll(15)
        yield node


def _history(client, node):
    return PrometheusHistory(client, lambda: node.poller.snapshot, finest=1.0)


async def _ready(client, jobs):
    async def ready():
        found = await client.query("count(count_over_time(gpuslice_gpu_up[1m])) or vector(0)")
        jobs_up = await client.query("count(up == 1) or vector(0)")
        return found[0].value and jobs_up[0].value == jobs

    await wait_until_async(ready, "all jobs have scraped the node")


@slow
@in_one_loop
@pytest.mark.parametrize("name", SCRAPES)
async def test_prometheus_tells_what_the_node_said(watched, name):
    """Every field of every thing comes back under our own labels, whatever the scrape does to them."""
    node, history = watched[name]
    past = await history.read(Ask(span=120, points=121))
    assert (past.source, past.note, past.step) == ("prometheus", "", 1.0)
    expected, found = known(node.poller.snapshot), newest(past)
    assert found.keys() == expected.keys()
    for thing, values in expected.items():
        assert found[thing] == pytest.approx(values, rel=1e-9)
    # Nothing was known before the first scrape.
    assert {values[0] for track in past.tracks for values in track.values.values()} == {None}


@slow
@in_one_loop
async def test_two_jobs_double_nothing(watched):
    """A node that two jobs scrape has the memory of one."""
    node, history = watched["two jobs"]
    past = await history.read(Ask(span=60, points=61))
    expected = known(node.poller.snapshot)
    found = newest(past)
    assert found.keys() == expected.keys()
    assert all(found[thing] == pytest.approx(expected[thing], rel=1e-9) for thing in expected)


@slow
@in_one_loop
async def test_who_was_there_for_a_part_of_a_step_counts_for_that_part(watched):
    """What holders use adds up to what their GPU does, though one comes and another goes meanwhile."""
    node, history = watched["moving"]
    before = {row.holder for row in node.poller.snapshot.containers}

    async def told():
        past = await history.read(Ask(span=20, points=2, wanted=Wanted(summing=True)))
        return past, {track.labels["pod"] for track in past.tracks if track.level == "container"}

    await node.poll(45)
    (came,) = {row.holder.pod for row in node.poller.snapshot.containers if row.holder not in before}
    await wait_until_async(lambda: _has(told, came), "the pod that came is scraped")
    await node.poll(100)
    past, pods = await told()
    assert came in pods
    gpus = [track for track in past.tracks if track.level == "gpu"]
    for gpu in gpus:
        own = [track for track in past.tracks if track.labels["uuid"] == gpu.labels["uuid"]]
        parts = [track.values["memory_used_bytes"] for track in own if track.level == "container"]
        parts.append(gpu.values["unattributed_memory_bytes"])
        for used, *each in zip(gpu.values["memory_used_bytes"], *parts, strict=True):
            assert sum(filter(None, each)) == pytest.approx(used or 0, rel=1e-6)


async def _has(told, pod):
    return pod in (await told())[1]


@slow
@in_one_loop
async def test_a_part_of_it(watched):
    """Levels, a GPU and a holder can be asked for alone; a container of no name stands for all of a pod."""
    node, history = watched["operator"]

    async def told(**wanted):
        past = await history.read(Ask(span=60, points=61, wanted=Wanted(**wanted)))
        return newest(past).keys()

    everything = known(node.poller.snapshot).keys()
    gpu = node.poller.snapshot.gpus[1].identity.uuid
    row = node.poller.snapshot.containers[0].holder
    assert await told(levels=frozenset({"gpu"})) == {thing for thing in everything if thing[0] == "gpu"}
    assert await told(uuid=gpu) == {thing for thing in everything if ("uuid", gpu) in thing[1]}
    of_pod = {
        thing
        for thing in everything
        if thing[0] == "container" and {("namespace", row.namespace), ("pod", row.pod)} <= set(thing[1])
    }
    assert of_pod
    assert await told(holder=(row.namespace, row.pod, "")) == of_pod
    assert await told(holder=(row.namespace, row.pod, row.container)) <= of_pod
    assert await told(holder=(row.namespace, row.pod, "another")) == set()
    assert await told(holder=("another", row.pod, "")) == set()
    assert await told(uuid="GPU-of-another-node") == set()


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
def test_steps(span, points, step, count):
    """Steps are whole minutes, no more than asked for, at multiples of themselves, up to the end."""
    end = 1_700_000_123.4
    past = past_of(span, end, points, 60.0)
    assert (past.step, past.count) == (step, count)
    assert past.start % past.step == 0
    assert past.end - past.step < end <= past.end
    assert past_of(span, end + 0.001, points, 60.0) == past
    ends = [past.start + number * step for number in (0, 1, count)]
    assert [step_ending_at(past, end) for end in ends] == [-1, 0, count - 1]
