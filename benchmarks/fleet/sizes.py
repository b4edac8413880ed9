"""What a Prometheus takes for fleets of more and more nodes: to scrape them, and to evaluate the rules."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.fleet.nodes import Fleet, Frame, scraped
from benchmarks.processes import ROOT, MissingError
from benchmarks.prometheus import Prometheus
from exporter.metrics import FAMILIES

_RULES = ROOT / "alerts/rules"
_SERIES = re.compile(r"(?<![:\w])gpuslice_\w+")
_EVERY = re.compile(r"^(  interval: )\S+$", re.MULTILINE)
_SHIPPED = re.compile(r"^- name: (\S+)\n  interval: (\d+)(m|h)$", re.MULTILINE)
_UNIT = {"m": 60, "h": 3600}
_GROUP = re.compile(r'rule_group="[^"]*;([^"]+)"')
INTERVAL = 15
"""Seconds between scrapes for which the cost of scraping is reported, whatever it is measured with."""


@dataclass(frozen=True, slots=True)
class Size:
    """A number of nodes, and the seconds between scrapes and between evaluations of the rules."""

    nodes: int
    scrape: float
    evaluate: int = 0  # 0: without rules


def read_by_rules() -> frozenset[str]:
    """Return the series that recording rules or alerts read."""
    return frozenset(_SERIES.findall("".join(_rules().values()))) & {family.name for family in FAMILIES}


def measured(size: Size, frames: Sequence[Frame]) -> dict[str, Any]:
    """Measure a fleet of this size, in bytes, seconds, and cores."""
    with scraped(Fleet(frames, size.nodes, size.scrape)) as server:
        empty = server.process.memory().resident, server.live()
        scraped_once = f"count(up == 1) == {size.nodes}"
        server.wait_until(lambda: bool(server.query(scraped_once)), f"all of {size.nodes} nodes are scraped")
        series, samples = server.total("prometheus_tsdb_head_series"), _samples(server)
        cpu, began = server.process.cpu(), time.monotonic()
        time.sleep(size.scrape)
        cpu, samples = server.process.cpu() - cpu, _samples(server) - samples
        busy = cpu / (time.monotonic() - began)
        figures = {
            "nodes": size.nodes,
            "series": series,
            "scraping": cpu / samples * series / INTERVAL,
            "resident": server.process.memory().resident - empty[0],
            "live": server.live() - empty[1],
        }
        if size.evaluate:
            figures |= _evaluating(server, size.evaluate, busy)
            figures["resident_with_rules"] = server.process.memory().resident - empty[0]
            figures["live_with_rules"] = server.live() - empty[1]
        return figures


def _samples(server: Prometheus) -> float:
    """Return how many samples it has appended."""
    return server.total("prometheus_tsdb_head_samples_appended_total")


def _evaluating(server: Prometheus, evaluate: int, scraping: float) -> dict[str, Any]:
    """Evaluate all groups of rules twice: the first time makes their series, the second is measured.

    ``scraping`` is the cores that it takes without rules.
    """
    shipped = _SHIPPED.findall("".join(_rules().values()))
    intervals = {name: int(number) * _UNIT[unit] for name, number, unit in shipped}
    for name, text in _rules().items():
        (server.folder / name).write_text(_EVERY.sub(rf"\g<1>{evaluate}s", text))
    server.reload()
    server.wait_until(lambda: server.total("prometheus_rule_evaluations_total") >= 1, "rules are evaluated")
    time.sleep(evaluate)
    server.check_memory()
    iterations = "prometheus_rule_group_iterations_total"
    cpu, began, before = server.process.cpu(), time.monotonic(), _by_group(server, iterations)
    time.sleep(evaluate)
    seconds = time.monotonic() - began
    busy = server.process.cpu() - cpu - scraping * seconds
    rounds = {group: number - before.get(group, 0) for group, number in _by_group(server, iterations).items()}
    last = _by_group(server, "prometheus_rule_group_last_duration_seconds")
    made = _by_group(server, "prometheus_rule_group_last_evaluation_samples")
    failed = server.total("prometheus_rule_evaluation_failures_total")
    if failed or rounds.keys() != intervals.keys() or not all(rounds.values()):
        # On a busy machine a group may take longer than this, and its figures would be of nothing.
        raise MissingError(
            f"{failed:g} evaluations failed; evaluations by group in {seconds:.0f} s: {rounds}"
        )
    cpu_of_all = busy / (sum(rounds.values()) / len(intervals))
    # Prometheus reports the duration of a group, not its CPU time, which is shared out by the duration.
    per_second = sum(last[name] / intervals[name] for name in intervals) / sum(last.values())
    return {
        "groups": {
            name: {"interval": interval, "seconds": last[name]} for name, interval in intervals.items()
        },
        "made": sum(made.values()),
        "rules_cpu": cpu_of_all,
        "rules_busy": cpu_of_all * per_second,
    }


def _by_group(server: Prometheus, name: str) -> dict[str, float]:
    metric = server.metric(name)
    return {match[1]: value for labels, value in metric.items() if (match := _GROUP.search(labels))}


def _rules() -> dict[str, str]:
    """Return the shipped files of rules, by their names."""
    return {path.name: path.read_text("utf-8") for path in _RULES.glob("*.yaml")}
