"""Usage from the records of several Prometheus servers in one store: replicas count once, shards add up."""

from collections.abc import Iterator, Mapping

import pytest

from exporter.fleet.usage.period import DAY, HOUR, Period
from exporter.fleet.usage.reading import read_usage
from tests.fleet.month import START
from tests.fleet.week import ask
from tests.product.compat.places import Stored, blocks, serve
from tests.together.end_to_end.programs import Prometheus
from tests.tools import tool

pytestmark = pytest.mark.slow

LENGTH = 3 * DAY
# The nodes of each shard, with a GPU each.
SHARDS = {"0": ("n0", "n1"), "1": ("n2",)}
NODES = 3
DOWN = (DAY + 5 * HOUR, DAY + 17 * HOUR)
BY = ("namespace", "owner", "node", "model", "label:team")


def _stored(name: str, labels: Mapping[str, str], hours: Mapping[float, float], step: float) -> Stored:
    """Return a record: the value of each step is there in the next one."""
    moments = (600, 1500, 2400, 3300) if step == HOUR else range(7200, int(DAY) - 600, 14400)
    values = [(START + end + later, repr(value)) for end, value in hours.items() for later in moments]
    return Stored({"__name__": name, **labels}, values)


def _of_server(shard: str, replica: str) -> Iterator[Stored]:
    """Yield the records of one server; replica b was down for a part of a day."""
    observed = {
        (hour + 1) * HOUR: HOUR
        for hour in range(int(LENGTH / HOUR))
        if replica == "a" or not DOWN[0] <= hour * HOUR < DOWN[1]
    }
    days: dict[float, float] = {}
    for end, seconds in observed.items():
        day = -(-end // DAY) * DAY
        days[day] = days.get(day, 0.0) + seconds
    server = {"shard": shard, "replica": replica, "monitor": "all"}
    nodes = SHARDS[shard]
    kind = {"model": "L4", "value": "held"}
    for span, hours, step in (("1h", observed, HOUR), ("1d", days, DAY)):
        all_nodes = {end: len(nodes) * seconds for end, seconds in hours.items()}
        for value, name in (("allocation", "held"), ("use", "holders")):
            labels = {"model": "L4", "value": value, "class": name, **server}
            if span == "1d":
                yield _stored("cluster:gpuslice_usage_seconds:increase1d", labels, all_nodes, step)
            for node in nodes if span == "1h" else ():
                yield _stored("node:gpuslice_usage_seconds:increase1h", {"node": node, **labels}, hours, step)
        for node in nodes:
            gpu = {"node": node, "uuid": f"GPU-{node}", "model": "L4"}
            yield _stored(f"gpu:gpuslice_observed_seconds:increase{span}", gpu | server, hours, step)
            yield _stored(
                f"node:gpuslice_usage:increase{span}", {"node": node, **kind, **server}, hours, step
            )
        for level, labels in {
            "namespace": {"namespace": "ml"},
            "owner": {"namespace": "ml", "owner_kind": "StatefulSet", "owner_name": "train"},
            "labels": {"namespace": "ml", "label_team": "research"},
        }.items():
            if level != "namespace" or span == "1d":
                record = f"{level}:gpuslice_usage:increase{span}"
                yield _stored(record, labels | kind | server, all_nodes, step)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Serve the records of two shards with two replicas each."""
    folder = tmp_path_factory.mktemp("servers")
    series = [each for shard in SHARDS for replica in "ab" for each in _of_server(shard, replica)]
    blocks(folder, tool("promtool"), series)
    with serve(folder, tool("prometheus")) as running:
        yield running


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize(
    "period",
    [Period(START, START + LENGTH, "days"), Period(START + DAY + 2 * HOUR, START + DAY + 20 * HOUR, "hours")],
    ids=lambda period: period.name,
)
def test_replicas_count_once_and_shards_add_up(server: Prometheus, by: str, period: Period) -> None:
    usage = ask(server, lambda client: read_usage(client, START + LENGTH + DAY, period, by))

    truth = NODES * (period.end - period.start)
    assert usage.problems == ()
    assert usage.gpus == NODES
    assert usage.balance.allocation["held"] == pytest.approx(truth)
    assert usage.balance.not_observed == pytest.approx(0, abs=1e-6)
    assert usage.total.held == pytest.approx(truth)
    assert len(usage.groups or ()) == (NODES if by == "node" else 1)
    assert all(group.name for group in usage.groups or ())
