"""Nodes of sharing systems as a real Prometheus knows them: their units, and what of them is free."""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from exporter.fleet import Fleet, Node
from exporter.fleet.amounts import UNKNOWN_AMOUNT, Amount, Units
from exporter.fleet.watch import read_fleet
from exporter.prometheus import Prometheus as Client
from tests.alerts.committed import quick_rules
from tests.commands.program import run
from tests.end_to_end.programs import Prometheus, demo, free_port, prometheus, until

pytestmark = pytest.mark.slow

SCENARIOS = ("mgpu", "gpu-manager", "h100-exclusive")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Scrape a node of each system, and one of NVIDIA's own plug-in."""
    ports = {name: free_port() for name in SCENARIOS}
    jobs = {name: f"http://127.0.0.1:{port}/metrics" for name, port in ports.items()}
    with ExitStack() as running, ThreadPoolExecutor() as at_once:
        folder = tmp_path_factory.mktemp("tsdb")
        there = running.enter_context(prometheus(folder, jobs, rules=[quick_rules(folder)]))
        demos = [demo(name, "--listen", f"127.0.0.1:{port}") for name, port in ports.items()]
        list(at_once.map(running.enter_context, demos))
        # On a busy machine a source may be late for the first poll.
        told = "min by (job) (gpuslice_collector_success) == 1"
        until(lambda: len(there.query(told)) == len(jobs), "each target was scraped, with all that it reads")
        there.settle()
        yield there


@pytest.fixture(scope="module")
def nodes(server: Prometheus) -> dict[str, Node]:
    """Give the nodes by the names of their jobs."""
    fleet = asyncio.run(_read(server.url))
    assert fleet.problems == ()
    return {node.target.job: node for node in fleet.nodes}


async def _read(url: str) -> Fleet:
    client = Client(url)
    fleet = await read_fleet(client, 3600)
    await client.close()
    return fleet


def test_units_of_two_resources_are_two_sums(nodes: dict[str, Node]) -> None:
    """Percents of compute and MiB of memory: of the latter nobody says how much there is."""
    node = nodes["mgpu"]

    assert node.slices == Units("", Amount(), Amount())
    assert node.units == (
        Units("vke.volcengine.com/mgpu-core", Amount(150, 2), Amount(200, 2)),
        Units("vke.volcengine.com/mgpu-memory", Amount(14336, 2), UNKNOWN_AMOUNT),
    )


def test_what_is_offered_is_known_where_holders_are_not(nodes: dict[str, Node]) -> None:
    """Of two GPUs nobody says who holds them: what is held is at least so much, and all is offered."""
    (units,) = nodes["gpu-manager"].units or ()

    assert (units.held.total, units.held.missing) == (100, 2)
    assert units.offered == Amount(300, 3)


def test_gpus_of_the_vendors_plugin_are_slices(nodes: dict[str, Node]) -> None:
    """Beside nodes of systems, slices are theirs alone."""
    node = nodes["h100-exclusive"]

    assert node.units == ()
    assert node.slices.offered.value == node.gpus.value
    assert node.slices.held.missing == 0


def test_inspect_tells_units_of_each_gpu_by_resource(server: Prometheus, nodes: dict[str, Node]) -> None:
    """No GPU holds more than it offers, and the total names each resource."""
    named = ("inspect", *(node.key.name for node in nodes.values()), "--prometheus-url", server.url)
    done = run(*named)
    document = json.loads(run(*named, "-o", "json").stdout)

    assert (done.returncode, done.stderr) == (0, "")
    assert "80 of 100 mgpu-core, 8192 mgpu-memory" in done.stdout
    assert "vcuda-core ≥ 100 held of 300 · mgpu-core 150 held of 200" in done.stdout.splitlines()[-1]
    for node in document["nodes"]:
        for gpu in node["devices"]:
            for one in gpu["units"]:
                held, offered = one["held"]["value"], one["offered"]["value"]
                assert held is None or offered is None or held <= offered
