"""Units of sharing systems in a real Prometheus: held and offered."""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from exporter.fleet.amounts import UNKNOWN_AMOUNT, Amount, Units
from exporter.fleet.model import Fleet, Node
from exporter.fleet.prometheus import Prometheus as Client
from exporter.fleet.watch import read_fleet
from tests.core.commands.program import run
from tests.product.alerts.committed import quick_rules
from tests.together.end_to_end.programs import Prometheus, demo, free_port, prometheus, until

pytestmark = pytest.mark.slow

SCENARIOS = ("mgpu", "gpu-manager", "h100-exclusive")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Scrape a node of each of two systems, and one with the NVIDIA plugin."""
    ports = {name: free_port() for name in SCENARIOS}
    jobs = {name: f"http://127.0.0.1:{port}/metrics" for name, port in ports.items()}
    with ExitStack() as running, ThreadPoolExecutor() as at_once:
        folder = tmp_path_factory.mktemp("tsdb")
        there = running.enter_context(prometheus(folder, jobs, rules=[quick_rules(folder)]))
        demos = [demo(name, "--listen", f"127.0.0.1:{port}") for name, port in ports.items()]
        list(at_once.map(running.enter_context, demos))
        # On a busy machine a source may be late for the first poll.
        complete = "min by (job) (gpuslice_collector_success) == 1"
        until(lambda: len(there.query(complete)) == len(jobs), "all sources of all nodes are scraped")
        there.settle()
        yield there


@pytest.fixture(scope="module")
def nodes(server: Prometheus) -> dict[str, Node]:
    """Return the nodes by the names of their jobs."""
    fleet = asyncio.run(_read(server.url))
    assert fleet.problems == ()
    return {node.target.job: node for node in fleet.nodes}


async def _read(url: str) -> Fleet:
    client = Client(url)
    fleet = await read_fleet(client, 3600)
    await client.close()
    return fleet


def test_units_of_two_resources_are_two_sums(nodes: dict[str, Node]) -> None:
    """Percent of compute, and MiB of memory, of which the amount on offer is unknown."""
    node = nodes["mgpu"]

    assert node.slices == Units("", Amount(), Amount())
    assert node.units == (
        Units("vke.volcengine.com/mgpu-core", Amount(150, 2), Amount(200, 2)),
        Units("vke.volcengine.com/mgpu-memory", Amount(14336, 2), UNKNOWN_AMOUNT),
    )


def test_offers_are_known_if_holders_are_not(nodes: dict[str, Node]) -> None:
    """The holders of two GPUs are unknown."""
    (units,) = nodes["gpu-manager"].units or ()

    assert (units.held.total, units.held.missing) == (100, 2)
    assert units.offered == Amount(300, 3)


def test_slices_are_those_of_the_vendor_plugin_only(nodes: dict[str, Node]) -> None:
    node = nodes["h100-exclusive"]

    assert node.units == ()
    assert node.slices.offered.value == node.gpus.value
    assert node.slices.held.missing == 0


def test_inspect_prints_units_of_each_gpu_by_resource(server: Prometheus, nodes: dict[str, Node]) -> None:
    """No GPU holds more than it offers; the total has each resource."""
    words = ("inspect", *(node.key.name for node in nodes.values()), "--prometheus-url", server.url)
    done = run(*words)
    document = json.loads(run(*words, "-o", "json").stdout)

    assert (done.returncode, done.stderr) == (0, "")
    assert "80 of 100 mgpu-core, 8192 mgpu-memory" in done.stdout
    assert "vcuda-core ≥ 100 held of 300 · mgpu-core 150 held of 200" in done.stdout.splitlines()[-1]
    for node in document["nodes"]:
        for gpu in node["devices"]:
            for one in gpu["units"]:
                held, offered = one["held"]["value"], one["offered"]["value"]
                assert held is None or offered is None or held <= offered
