"""A Prometheus that has scraped fake nodes of many kinds.

The nodes and the Prometheus that scrapes them end first; the stored data is served by another one.
"""

import json
import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from alerts.thresholds import load_thresholds
from alerts.write import ALERTS, RECORDING, rule_files
from tests.together.end_to_end.programs import Prometheus, demo, free_port, prometheus, until

SCENARIOS = Path(__file__).parents[3] / "exporter/demo/scenarios"
JOB = "gpuslice-exporter"
# The nodes run for little longer.
IDLE_SECONDS = 6
# Seconds between two scrapes of a node, and between two evaluations of the rules.
SCRAPED, ROUND = 2, 2
RULES = f"""
[rules]
interval = "{ROUND}s"
slow_interval = "{ROUND}s"
[sharing]
idle_after = "{IDLE_SECONDS}s"
"""
# For the Hardware dashboard, and for dashboards that need more than the default names of dcgm-exporter.
SERIES = ("--metric-set=standard", "--dcgm-names=all")
# The cluster that has a node of the same name as the first.
TWICE = "south"


@dataclass(frozen=True, slots=True)
class Node:
    """A fake node, and the labels that Prometheus gives it."""

    scenario: str
    labels: dict[str, str] = field(default_factory=dict)
    options: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Scene:
    """The Prometheus with the data, and the time of the last evaluation of rules."""

    server: Prometheus
    now: float

    @property
    def later(self) -> float:
        """The next full minute: Grafana's subqueries begin at full minutes."""
        return self.now // 60 * 60 + 60


def nodes(folder: Path) -> list[Node]:
    """Return the nodes: the fewest that fill every panel; the last of them becomes silent."""
    jobs = folder / "jobs"
    jobs.mkdir()
    (jobs / "1").write_text("4711\n")
    (jobs / "7.1").write_text("4712\n")
    return [
        Node(_quiet(folder, "showcase"), {"cluster": "east"}),
        Node(
            _quiet(folder, "h100-mixed"),
            {"cluster": "east"},
            ("--job-mapping-dir", str(jobs), "--pcie-throughput", "on"),
        ),
        Node(_sick(folder), {"cluster": "west"}),
        Node("vgpu-host"),
        Node("mi300x-cpx"),
        Node("hami-vendors", {"cluster": "east"}),
        Node("elastic-gpu", {"cluster": "west"}),
        Node("nos", {"cluster": "west"}, ("--dcgm-names", "legacy", "--metric-allowlist", "DCGM_.*")),
        Node("vgpu-guest", {"cluster": "west"}),
        Node("mig-timeslicing", {"cluster": "west"}),
    ]


def _quiet(folder: Path, name: str) -> str:
    """Return a scenario in which no pods come and go: records show them some rounds later."""
    return _written(folder, _read(name) | {"faults": []})


def _sick(folder: Path) -> str:
    """Return a scenario in which all faults begin within seconds and last; GPUs have fans and encoders."""
    scenario = _read("sick-gpus")
    for gpu in scenario["gpus"]:
        gpu["fan"] = 30
    for fault in scenario["faults"]:
        fault["at"] = 2 + fault["at"] // 6
        if "for" in fault:
            fault["for"] = 600
    scenario["faults"].append({"kind": "kubelet_rate_limit", "at": 4, "for": 5})
    (drawing,) = (pod for pod in scenario["pods"] if pod["name"] == "render")
    drawing["containers"][0]["processes"][0]["streams"] = 2
    return _written(folder, scenario)


def _read(name: str) -> dict[str, Any]:
    scenario: dict[str, Any] = json.loads((SCENARIOS / f"{name}.json").read_text(encoding="utf-8"))
    return scenario


def _written(folder: Path, scenario: dict[str, Any]) -> str:
    path = folder / f"{scenario['name']}.json"
    path.write_text(json.dumps(scenario))
    return str(path)


@contextmanager
def scene(folder: Path) -> Iterator[Scene]:
    """Scrape the nodes until all events have happened, and serve the stored data."""
    thresholds = folder / "thresholds.toml"
    thresholds.write_text(RULES)
    made = rule_files(load_thresholds(thresholds))
    rules = [folder / "recording.yaml", folder / "alerts.yaml"]
    # The intervals of the rules of advice cannot be set.
    rules[0].write_text(re.sub(r"(?m)^( +interval: ).*$", rf"\g<1>{ROUND}s", made[RECORDING]))
    # Alerts fire at once.
    rules[1].write_text(re.sub(r"(?m)^ +for: .*\n", "", made[ALERTS]))
    now = _scraped(folder, rules)
    with prometheus(folder, {}) as server:
        yield Scene(server, now)


def _scraped(folder: Path, rules: Sequence[Path]) -> float:
    chosen = nodes(folder)
    addresses = [f"127.0.0.1:{free_port()}" for _ in chosen]
    targets = [
        {"targets": [address], "labels": node.labels} for address, node in zip(addresses, chosen, strict=True)
    ]
    targets.append({"targets": [addresses[0]], "labels": {"cluster": TWICE}})
    scrape = {
        "honor_labels": True,
        "static_configs": targets,
        "scrape_interval": f"{SCRAPED}s",
        "scrape_timeout": f"{SCRAPED}s",
    }
    # Prometheus ends first, so that it does not see the nodes go.
    with ExitStack() as running, ThreadPoolExecutor() as at_once, ExitStack() as scraping:
        # It begins to scrape after 5 s; the nodes start in the meantime.
        jobs = {JOB: f"http://{addresses[0]}/metrics"}
        server = scraping.enter_context(prometheus(folder, jobs, scrape=scrape, rules=rules))
        stacks = [running] * (len(chosen) - 1) + [running.enter_context(ExitStack())]
        demos = [
            demo(node.scenario, "--poll-interval=4s", f"--listen={address}", *SERIES, *node.options)
            for address, node in zip(addresses, chosen, strict=True)
        ]
        list(at_once.map(lambda stack, each: stack.enter_context(each), stacks, demos))
        until(lambda: len(server.query("sum_over_time(up[1m]) >= 5")) == len(targets), "five scrapes of each")
        until(lambda: server.query('gpuslice_gpu_up{cluster="west"} == 0'), "a GPU was lost")
        stacks[-1].close()
        until(lambda: server.query("sum(node:gpuslice_idle_holders:sum) > 0"), "some holders are idle")
        others = f"count(min_over_time(up[{3 * SCRAPED}s]) == 1) == {len(targets) - 1}"
        silent = f"count(up == 0) == 1 and {others}"
        until(lambda: server.query(silent), "one node is silent, and no other")
        # Rules use rules, three deep at most, and each is a round behind those that it uses.
        after = time.time() + 3 * ROUND
        until(lambda: _last_evaluation(server) > after, "all rules are evaluated after that")
        now = max(server.query("timestamp(node:gpuslice_total_gpus:count)").values())
        _wait_for_a_pause(server)
        return now


def _wait_for_a_pause(server: Prometheus) -> None:
    """Wait for the longest pause between scrapes: an aborted one is stored as failed."""
    phases = sorted(at % SCRAPED for at in server.query("timestamp(up)").values())
    pauses = zip(phases, (*phases[1:], phases[0] + SCRAPED), strict=True)
    begin, end = max(pauses, key=lambda pause: pause[1] - pause[0])
    time.sleep(((begin + end) / 2 - time.time()) % SCRAPED)


def _last_evaluation(server: Prometheus) -> float:
    """Return the Unix time since which all rules have been evaluated."""
    groups = server.api("rules")["groups"]
    return min(datetime.fromisoformat(group["lastEvaluation"]).timestamp() for group in groups)
