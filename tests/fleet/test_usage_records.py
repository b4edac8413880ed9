"""The records of usage about holders of which something is unknown, and about short pods."""

from collections.abc import Iterator

import pytest

from alerts.usage_records import usage_groups
from exporter.fleet.usage.model import Usage
from exporter.fleet.usage.period import DAY, HOUR, Period
from exporter.fleet.usage.reading import read_usage
from tests.fleet.month import H100, SCRAPE, START, Gpu, Pod, Run, Time, World, served
from tests.fleet.week import ask
from tests.product.compat.places import Stored, blocks, serve
from tests.together.end_to_end.programs import Prometheus
from tests.tools import tool

pytestmark = pytest.mark.slow

TIME = Time(HOUR, 9 * HOUR)
LENGTH = 12 * HOUR


def _pod(name: str, gpu: str, share: float, used: float, **more: bool) -> Pod:
    owner = "ReplicaSet", "web-6f9"
    return Pod(name=name, time=TIME, gpu=gpu, share=share, used=used, team="research", owner=owner, **more)  # type: ignore[arg-type]


# A deployment that has been removed since.
DEPLOYMENT = {"cluster": "west", "namespace": "ml", "replicaset": "web-6f9", "owner_kind": "Deployment"}
WORLD = World(
    gpus=(Gpu(uuid="GPU-0", node="n1"), Gpu(uuid="GPU-1", node="n1")),
    pods=(
        _pod("compute", "GPU-0", 0.5, 0.25),
        _pod("memory", "GPU-0", 0.25, 0.25, by_memory=True),
        _pod("unshared", "GPU-1", 0.0, 0.5, unshared=True),
    ),
    runs={"n1": (Run(time=Time(0, LENGTH), instance="10.0.0.1:9836"),)},
    length=LENGTH,
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Serve half a day and its records."""
    owner = Stored(
        {"__name__": "kube_replicaset_owner", **DEPLOYMENT, "owner_name": "web"},
        [(START + at, "1") for at in range(int(TIME.start), int(LENGTH), SCRAPE)],
    )
    folder = tmp_path_factory.mktemp("records") / "prometheus"
    with served(folder, WORLD, lambda series: [*series, owner]) as running:
        yield running


def read(server: Prometheus, by: str) -> Usage:
    """Return the usage of ten hours."""
    period = Period(START, START + 10 * HOUR, "")
    return ask(server, lambda client: read_usage(client, START + 11 * HOUR, period, by))


@pytest.mark.parametrize(
    ("by", "name"),
    [
        ("namespace", "ml"),
        ("label:team", "research"),
        ("node", "n1"),
        ("model", H100),
        ("owner", "ml/web (Deployment)"),
    ],
)
def test_holders_with_an_unknown_share_are_in_their_group(server: Prometheus, by: str, name: str) -> None:
    usage = read(server, by)

    (group,) = usage.groups or ()
    assert group.name == name
    hours, tolerance = TIME.seconds, 2 * SCRAPE
    assert group.total.held == pytest.approx(0.75 * hours, abs=tolerance)
    assert group.total.used == pytest.approx(hours, abs=tolerance)
    assert group.total.unshared == pytest.approx(hours, abs=tolerance)
    # Of the others it is unknown what part of what they hold they use.
    assert group.total.used_of_held == pytest.approx(0.5, abs=0.02)
    assert group.total.uncompared == pytest.approx(0.75 * hours, abs=tolerance)


def test_pods_of_a_deployment_that_is_gone_are_its_pods(server: Prometheus) -> None:
    period = Period(START, START + 10 * HOUR, "")
    usage = ask(server, lambda client: read_usage(client, START + 60 * DAY, period, "owner"))

    assert [group.name for group in usage.groups or ()] == ["ml/web (Deployment)"]


def test_a_pod_of_the_last_minutes_of_an_hour_has_its_owner(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Also before the next hourly record of owners."""
    folder = tmp_path_factory.mktemp("owner")
    pod = {"cluster": "west", "namespace": "ml", "pod": "nightly-1"}
    holder = pod | {
        "container": "main",
        "node": "n1",
        "gpu": "0",
        "uuid": "GPU-0",
        "model": H100,
        "value": "held",
    }
    blocks(
        folder,
        tool("promtool"),
        [
            Stored(
                {"__name__": "container:gpuslice_usage:increase1h", **holder},
                [(START + DAY + 600.0, "300.0")],
            ),
            Stored(
                {"__name__": "kube_pod_owner", **pod, "owner_kind": "Job", "owner_name": "nightly"},
                [(START + DAY - 480.0 + 30 * step, "1") for step in range(10)],
            ),
        ],
    )
    (rule,) = (
        rule
        for group in usage_groups()
        for rule in group.rules
        if rule.name == "owner:gpuslice_usage:increase1h"
    )
    with serve(folder, tool("prometheus")) as running:
        ((row, value),) = (
            (each["metric"], each["value"][1])
            for each in running.api("query", query=rule.expr, time=str(START + DAY + 1200))["result"]
        )
    assert (row["owner_kind"], row["owner_name"], float(value)) == ("Job", "nightly", 300.0)
