"""A cluster of fake nodes in a real Prometheus: sums, nodes that do not answer, and the pages of the hub."""

import asyncio
import json
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import async_playwright

from exporter.fleet.model import Fleet
from exporter.fleet.prometheus import Prometheus as Client
from exporter.fleet.watch import read_fleet
from tests.core.commands.program import command, environment, run, serving
from tests.page.browser.site import chromium
from tests.product.alerts.committed import quick_rules
from tests.together.end_to_end.programs import (
    PATIENCE,
    Prometheus,
    demo,
    free_port,
    get,
    prometheus,
    scraped_snapshots,
    until,
)
from tests.waiting import wait_until_async

pytestmark = pytest.mark.slow

IDLE_AFTER = 1.0
AVERAGED = 5
# Polls are rare, so that the nodes show what Prometheus has scraped.
ONCE = ("--poll-interval", "1h", "--stale-after", "2h")
SCENARIOS = {"mixed": "t4-timeslicing", "mig": "a100-mig-mixed", "sick": "sick-gpus"}
LEAVING = "mig-timeslicing"
OF_TARGET = {"namespace": "monitoring", "pod": "exporter-x", "container": "exporter", "node": "k8s-3"}
SCRAPE = {
    "honor_labels": True,
    "relabel_configs": [
        {"source_labels": ["job"], "regex": "sick", "target_label": name, "replacement": value}
        for name, value in OF_TARGET.items()
    ],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The Prometheus, the cluster as read from it, and the snapshots of the nodes that answer."""

    server: Prometheus
    fleet: Fleet
    snapshots: Sequence[dict[str, Any]]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Known]:
    """Scrape three nodes, one by two jobs and one with labels of its target; a fourth is stopped."""
    ports = {name: free_port() for name in (*SCENARIOS, "leaving")}
    urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    jobs = {name: f"{url}/metrics" for name, url in (urls | {"again": urls["mixed"]}).items()}
    with ExitStack() as running, ThreadPoolExecutor() as at_once:
        # Prometheus takes 5 s until it scrapes at all; the nodes start in the meantime.
        folder = tmp_path_factory.mktemp("tsdb")
        rules = [_rules(folder)]
        server = running.enter_context(prometheus(folder, jobs, scrape=SCRAPE, rules=rules))
        with ExitStack() as leaving:
            demos = [
                (running, demo(scenario, *ONCE, "--listen", f"127.0.0.1:{ports[name]}"))
                for name, scenario in SCENARIOS.items()
            ]
            there = ("--poll-interval", "1s", "--listen", f"127.0.0.1:{ports['leaving']}")
            demos.append((leaving, demo(LEAVING, *there)))
            list(at_once.map(lambda each: each[0].enter_context(each[1]), demos))
            scraped = "count_over_time(gpuslice_snapshot_timestamp_seconds[1m]) >= 3"
            until(lambda: len(server.query(scraped)) == len(jobs), "each target was scraped three times")
            old = f'time() - gpuslice_snapshot_timestamp_seconds{{job!="leaving"}} > {IDLE_AFTER + 1}'
            until(lambda: len(server.query(old)) == len(jobs) - 1, "containers that do not compute are idle")
        until(lambda: server.query('up{job="leaving"} == 0'), "Prometheus saw that one does not answer")
        settled = "count(sum by (node) (min_over_time(node:gpuslice_total_bytes:sum[3s:1s]))) == 3"
        until(lambda: server.query(settled), "the records are those of the nodes that answer")
        nodes = [url for name, url in urls.items() if name in SCENARIOS]
        yield until(lambda: _standing_still(server, nodes), "the nodes show what Prometheus has scraped")


def _rules(folder: Path) -> Path:
    """Write the recording rules; what is an average of five minutes is one of seconds."""
    path = quick_rules(folder)
    path.write_text(path.read_text().replace("[5m]", f"[{AVERAGED}s]"))
    return path


def _standing_still(server: Prometheus, urls: list[str]) -> Known | None:
    """Read the cluster; return None if a node was polled meanwhile, such as after an event of its driver."""
    snapshots = scraped_snapshots(server, urls)
    changes = f'changes(gpuslice_snapshot_timestamp_seconds{{job!="leaving"}}[{2 * AVERAGED}s]) == 0'
    if len(server.query(changes)) != len(SCENARIOS) + 1:
        return None
    server.settle()
    fleet = asyncio.run(_read(server.url))
    same = snapshots and snapshots == scraped_snapshots(server, urls)
    # On a busy machine a scrape may be late, and a node seems not to answer.
    answered = server.query('min_over_time(up{job!="leaving"}[20s]) == 1')
    stood_still = same and len(answered) == len(SCENARIOS) + 1
    return Known(server=server, fleet=fleet, snapshots=snapshots) if stood_still else None


async def _read(url: str) -> Fleet:
    client = Client(url)
    fleet = await read_fleet(client, 3600)
    await client.close()
    return fleet


def _sum(rows, field: str) -> Any:
    return pytest.approx(sum(row[field] for row in rows if row[field] is not None))


def test_every_question_is_answered(known: Known) -> None:
    assert known.fleet.problems == ()


def test_each_node_is_there_once(known: Known) -> None:
    """A node that is scraped by two jobs is one row, under its own name."""
    names = [snapshot["node"]["node"] for snapshot in known.snapshots]

    assert sorted(node.key.name for node in known.fleet.nodes if not node.silent) == sorted(names)
    assert len(known.fleet.silent) == 1


def test_totals_are_the_sums_of_the_nodes(known: Known) -> None:
    nodes = {node.key.name: node for node in known.fleet.nodes if not node.silent}
    for snapshot in known.snapshots:
        node = nodes[snapshot["node"]["node"]]
        gpus, rows = snapshot["gpus"], snapshot["containers"]
        assert node.gpus.value == snapshot["node"]["gpus"] == len(gpus)
        assert node.memory_total.total == _sum(gpus, "memory_total_bytes")
        assert node.memory.used.total == _sum(rows, "memory_used_bytes")
        assert node.memory.held.total == _sum(rows, "memory_entitled_bytes")
        assert node.compute.held.total == _sum(rows, "compute_entitled_ratio")
        assert node.compute.used.total == _sum(rows, "compute_used_ratio")
        offered = sum(sum(filter(None, gpu["slices"].values())) for gpu in gpus)
        assert node.slices.offered.value == offered
        assert node.units == ()


def test_sums_count_the_rows_without_a_measurement(known: Known) -> None:
    nodes = {node.key.name: node for node in known.fleet.nodes if not node.silent}
    missing = {
        snapshot["node"]["node"]: sum(row["compute_used_ratio"] is None for row in snapshot["containers"])
        for snapshot in known.snapshots
    }

    assert any(missing.values())
    assert {name: node.compute.used.missing for name, node in nodes.items()} == missing
    assert nodes["dgx-a100-07"].compute.used.value is None


def test_namespaces_have_the_sums_of_their_containers(known: Known) -> None:
    """The namespace of the exporter is not among them."""
    namespaces = {each.name: each for each in known.fleet.namespaces}
    rows = [row for snapshot in known.snapshots for row in snapshot["containers"]]

    assert namespaces.keys() == {row["namespace"] for row in rows}
    for name, each in namespaces.items():
        mine = [row for row in rows if row["namespace"] == name]
        assert each.memory.held.total == _sum(mine, "memory_entitled_bytes")
        assert each.memory.used.total == _sum(mine, "memory_used_bytes")
        assert each.compute.used.total == _sum(mine, "compute_used_ratio")
        both = [row for row in mine if None not in (row["memory_entitled_bytes"], row["memory_used_bytes"])]
        wasted = sum(max(row["memory_entitled_bytes"] - row["memory_used_bytes"], 0) for row in both)
        assert each.memory.wasted.total == pytest.approx(wasted)
        assert each.holders == sum(row["slices"] != 0 for row in mine)


def test_a_stopped_node_is_silent_and_not_zero(known: Known) -> None:
    """It is listed with the age of its last data, and its values are unknown."""
    (node,) = known.fleet.silent

    assert node.silent == "its exporter does not answer"
    assert node.age is not None
    assert node.gpus.value is None
    assert node.memory.used.value is None


def test_gpu_hours_of_a_stopped_node_are_not_lost(known: Known) -> None:
    """They are in the increase of the counters, once."""
    client_side = known.server.query(
        'sum by (namespace) (increase(gpuslice_container_entitled_gpu_seconds_total{job="leaving"}[1h]))'
    )
    held = known.server.query("sum by (namespace) (namespace:gpuslice_held_gpu_seconds:increase1h)")

    assert client_side
    for namespace, seconds in client_side.items():
        assert held[namespace] >= 0.5 * seconds


def test_idle_holders_are_those_of_the_nodes(known: Known) -> None:
    expected = {
        (row["namespace"], row["pod"], row["container"]): row
        for snapshot in known.snapshots
        for row in snapshot["containers"]
        if row["compute_used_ratio"] == 0 and row["slices"] != 0
    }
    found = {
        (each.holder.namespace, each.holder.pod, each.holder.container): each for each in known.fleet.idle
    }

    assert expected
    assert found.keys() == expected.keys()
    for name, each in found.items():
        assert each.memory_used == expected[name]["memory_used_bytes"]
        assert each.memory_held == expected[name]["memory_entitled_bytes"]
        assert each.seconds >= IDLE_AFTER
    assert known.fleet.total.idle_holders.value == len(expected)


def test_sick_gpus_are_listed_with_their_reasons(known: Known) -> None:
    reasons = {(gpu.node.name, gpu.gpu): gpu.reasons for gpu in known.fleet.sick}

    assert "needs a reset" in reasons["hgx-a100-sick", "2"]
    assert {node for node, _ in reasons} == {"hgx-a100-sick"}


def test_inspect_prints_the_cluster(known: Known) -> None:
    """It has a row for each GPU, a line for the silent node, and the total."""
    done = run("inspect", "--prometheus-url", known.server.url)

    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    starts = [line.split()[0] for line in lines[1:] if line and not line.startswith(" ")]
    assert starts == [*sorted(node.key.name for node in known.fleet.nodes), "Total:"]
    assert "its exporter does not answer" in done.stdout
    assert lines[-1].startswith("Total: 4 nodes (1 not answering) · ≥ 18 GPUs")


def test_inspect_with_details_lists_the_holders_of_all_nodes(known: Known) -> None:
    """A silent node has no list."""
    done = run("inspect", "--details", "--output", "json", "--prometheus-url", known.server.url)

    assert (done.returncode, done.stderr) == (0, "")
    printed = {
        (node["node"], holder["namespace"], holder["pod"], gpu["uuid"])
        for node in json.loads(done.stdout)["nodes"]
        for gpu in node["devices"] or ()
        for holder in gpu["holders"]
    }
    assert printed == {
        (each["node"]["node"], row["namespace"], row["pod"], row["uuid"])
        for each in known.snapshots
        for row in each["containers"]
    }


def test_inspect_names_the_nodes_there_are(known: Known) -> None:
    """For an unknown node the exit code is 1, with one line."""
    done = run("inspect", "nowhere", "--prometheus-url", known.server.url)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("gpuslice-exporter: no node 'nowhere'; there are a30-node-5, dgx-a100-07")
    assert done.stderr.count("\n") == 1


def test_the_plugin_of_kubectl_inspects_one_node_with_details_as_json(known: Known) -> None:
    """Without a command, its arguments are those of inspect."""
    snapshot = next(each for each in known.snapshots if each["node"]["node"] == "hgx-a100-sick")
    start = [
        command()[0],
        "-c",
        "import sys; from exporter.cli import kubectl_main; sys.exit(kubectl_main())",
    ]
    done = subprocess.run(
        [*start, "hgx-a100-sick", "--details", "-o", "json"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env=environment(GPUSLICE_PROMETHEUS_URL=known.server.url),
    )

    assert (done.returncode, done.stderr) == (0, "")
    (node,) = json.loads(done.stdout)["nodes"]
    holders = {
        (each["namespace"], each["pod"], each["memory_used_bytes"])
        for gpu in node["devices"]
        for each in gpu["holders"]
    }
    assert holders == {
        (row["namespace"], row["pod"], row["memory_used_bytes"]) for row in snapshot["containers"]
    }
    conditions = [set(gpu["conditions"]) for gpu in node["devices"]]
    before = [{name for name, holds in gpu["condition"].items() if holds} for gpu in snapshot["gpus"]]
    # The driver may have reported further events since the snapshot; a condition does not end.
    assert any(before)
    assert all(map(set.issubset, before, conditions))
    used = [gpu["memory_used_bytes"]["value"] for gpu in node["devices"]]
    assert used == [gpu["memory_used_bytes"] for gpu in snapshot["gpus"]]


def test_the_hub_serves_the_cluster(known: Known) -> None:
    """The page, JSON, its own series and its stream; the browser reports no error."""
    options = ("--prometheus-url", known.server.url, "--refresh", "1s")
    with serving("hub", *options) as hub:
        until(lambda: hub.get("-/ready") == "ok\n", "the first read of the cluster")
        document = json.loads(hub.get("api/v1/fleet"))
        assert document["fleet"]["totals"]["nodes_not_answering"] == 1
        assert document["fleet"]["totals"]["gpus"] == {"value": 18.0, "complete": False}
        assert b"IDLE HOLDER" in get(hub.url)[1]
        series = hub.get("metrics")
        assert "gpuslice_hub_up 1.0" in series
        assert "gpuslice_hub_nodes_silent 1.0" in series
        asyncio.run(_browse(hub.url))
        assert hub.stop() == 0


async def _browse(url: str) -> None:
    errors: list[str] = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        page = await browser.new_page(viewport={"width": 380, "height": 800})
        page.set_default_timeout(PATIENCE * 1000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
        foreign: list[str] = []
        page.on("request", lambda asked: None if asked.url.startswith(url) else foreign.append(asked.url))
        await page.goto(f"{url}fleet?nodes=name")
        assert await page.locator("#nodes tbody tr").count() == 4
        assert await page.evaluate("document.documentElement.scrollWidth") == 380
        shown = await page.get_attribute("body", "data-sequence")
        changed = f"document.body.dataset.sequence !== {json.dumps(shown)}"
        await wait_until_async(lambda: page.evaluate(changed), changed)
        assert await page.locator("#nodes tbody tr").count() == 4
        await page.locator("#idle th a", has_text="Memory").click()
        sorted_by = "location.search.includes('idle=memory')"
        await wait_until_async(lambda: page.evaluate(sorted_by), sorted_by)
        await browser.close()
    assert errors == []
    assert foreign == []
