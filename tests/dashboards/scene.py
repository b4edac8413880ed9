"""A Prometheus that has scraped fake nodes of many kinds, for dashboards to be drawn from.

The nodes and the Prometheus that scrapes them end before anything is asked; what was stored is served by
another one that does nothing else.
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
from tests.end_to_end.programs import Prometheus, demo, free_port, prometheus, until

SCENARIOS = Path(__file__).parents[2] / "exporter/demo/scenarios"
JOB = "gpuslice-exporter"
IDLE_SECONDS = 10
"""After so long a holder is idle here: the nodes run for little longer."""
SCRAPED = 5
"""Seconds from one scrape of a node to the next."""
ROUND = 5
"""Seconds from one evaluation of the rules to the next."""
RULES = f"""
[rules]
interval = "{ROUND}s"
slow_interval = "{ROUND}s"
[sharing]
idle_after = "{IDLE_SECONDS}s"
"""
SERIES = ("--metric-set=standard", "--dcgm-names=all")
"""What the Hardware dashboard needs; dashboards for dcgm-exporter need more than its default names."""
TWICE = "south"
"""The cluster that has the first node as well: nodes of two clusters may be called the same."""


@dataclass(frozen=True, slots=True)
class Node:
    """A fake node, and the labels that Prometheus gives it."""

    scenario: str
    labels: dict[str, str] = field(default_factory=dict)
    options: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Scene:
    """What was scraped. ``now`` is the time of the last rules; ``later`` is a full minute soon after it.

    Grafana's subqueries go by full minutes, and see what was stored up to five minutes before.
    """

    server: Prometheus
    now: float

    @property
    def later(self) -> float:
        """Unix time."""
        return self.now // 60 * 60 + 60


def nodes(folder: Path) -> list[Node]:
    """Choose the nodes: the fewest that fill every panel; the last of them is going to be silent."""
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
        Node("elastic-gpu", {"cluster": "west"}, ("--kubernetes-api", "off")),
        Node("nos", {"cluster": "west"}, ("--dcgm-names", "legacy", "--metric-allowlist", "DCGM_.*")),
        Node("vgpu-guest", {"cluster": "west"}),
        Node("mig-timeslicing", {"cluster": "west"}),
    ]


def _quiet(folder: Path, name: str) -> str:
    """Let no pods come and go: the rules would tell of them some rounds later."""
    return _written(folder, _read(name) | {"faults": []})


def _sick(folder: Path) -> str:
    """Let all befall sick GPUs within seconds, and for good; they have fans, and encode what they draw."""
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
    """Scrape the nodes until all of it has happened, and serve what was stored."""
    thresholds = folder / "thresholds.toml"
    thresholds.write_text(RULES)
    made = rule_files(load_thresholds(thresholds))
    rules = [folder / "recording.yaml", folder / "alerts.yaml"]
    # Those of advice have intervals that are not to be set.
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
        # It takes 5 s until it scrapes at all; the nodes start in the meantime.
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
        # Rules stand on rules, three deep at most; each is a round behind those that it stands on.
        seen = time.time() + 3 * ROUND
        until(lambda: _reckoned(server) > seen, "all rules have seen it")
        now = max(server.query("timestamp(node:gpuslice_total_gpus:count)").values())
        _wait_for_a_pause(server)
        return now


def _wait_for_a_pause(server: Prometheus) -> None:
    """Wait for the longest pause between scrapes: one that is cut off is stored as one that failed."""
    phases = sorted(at % SCRAPED for at in server.query("timestamp(up)").values())
    pauses = zip(phases, (*phases[1:], phases[0] + SCRAPED), strict=True)
    begin, end = max(pauses, key=lambda pause: pause[1] - pause[0])
    time.sleep(((begin + end) / 2 - time.time()) % SCRAPED)


def _reckoned(server: Prometheus) -> float:
    """Give the Unix time since which all rules have been evaluated."""
    groups = server.api("rules")["groups"]
    return min(datetime.fromisoformat(group["lastEvaluation"]).timestamp() for group in groups)
