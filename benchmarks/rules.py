#!/usr/bin/env python3
"""What the recording rules and alerts cost a Prometheus that scrapes so many nodes.

Run as ``python benchmarks/rules.py [nodes ...]``. A server in this process shows that many nodes, each of 8
GPUs with two holders each, as the exporter does, but only with the series that the rules read. A real
Prometheus scrapes it and evaluates the real rules, more often than usual so that there are several times to
choose from. Printed are, for each group of rules, how many it has, the middle and the best of the times that
an evaluation took, and how many series it made; and the processor's time that evaluating all of them once
took, which is what travels to a machine that does other things too. Everything stays on 127.0.0.1. Without
Prometheus on PATH nothing is measured.
"""

import argparse
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from simulated.nodes import GPUS, HOLDERS, Nodes, served, template

from alerts.thresholds import load_thresholds
from alerts.write import ALERTS, RECORDING, rule_files
from exporter.metrics import FAMILIES

MOST_MEMORY, LEAST_FREE = 10 << 30, 2 << 30
_SERIES = re.compile(r"(?<![:\w])gpuslice_\w+")


def main() -> None:
    """Measure each size and print."""
    arguments = _arguments()
    # Who is told to end must not leave a Prometheus behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if shutil.which("prometheus") is None:
        _say("no prometheus on PATH: nothing is measured")
        return
    for nodes in arguments.nodes:
        with tempfile.TemporaryDirectory() as folder:
            _measure(nodes, arguments, Path(folder))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("nodes", nargs="*", type=int, default=[50])
    parser.add_argument("--scrape", default=2, type=int, help="seconds between scrapes (default: 2)")
    parser.add_argument("--evaluate", default=5, type=int, help="seconds between evaluations (default: 5)")
    parser.add_argument("--seconds", default=20, type=int, help="how long to measure (default: 20)")
    parser.add_argument("--warm", default=10, type=int, help="how long to scrape before that (default: 10)")
    parser.add_argument("--clash", action="store_true", help="labels of targets clash, and are not honoured")
    parser.add_argument("--each", action="store_true", help="print the cost of each rule, too")
    return parser.parse_args()


def _say(line: str = "") -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class Prometheus:
    """A running Prometheus."""

    def __init__(self, port: int, process: "subprocess.Popen[bytes]") -> None:
        self._port = port
        self._process = process

    def get(self, path: str) -> bytes:
        """Fetch something from it; OSError or HTTPException where it does not answer."""
        connection = HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            connection.request("GET", path)
            return connection.getresponse().read()
        finally:
            connection.close()

    def metric(self, name: str) -> dict[str, float]:
        """Give one of its own series: the values by its labels."""
        lines = self.get("/metrics").decode().splitlines()
        found = [line.rsplit(" ", 1) for line in lines if re.match(rf"{name}[{{ ]", line)]
        return {labels.removeprefix(name): float(value) for labels, value in found}

    def resident(self) -> int:
        """Give the bytes of memory that it has."""
        text = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) << 10  # type: ignore[index] - Linux writes it

    def used(self) -> float:
        """Give the seconds of processors that it has used."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def reload(self) -> None:
        """Have it read its files of rules."""
        self._process.send_signal(signal.SIGHUP)

    def stop_if_too_large(self) -> None:
        """Do not take the memory of others: SystemExit where little is left, or it has too much."""
        text = Path("/proc/meminfo").read_text()
        free = int(re.search(r"MemAvailable:\s+(\d+)", text)[1]) << 10  # type: ignore[index] - as above
        if self.resident() > MOST_MEMORY or free < LEAST_FREE:
            self._process.send_signal(signal.SIGKILL)
            raise SystemExit(
                f"stopped: it had {self.resident() / 1e9:.1f} GB, and {free / 1e9:.1f} GB were left"
            )


@contextmanager
def _prometheus(folder: Path, pages: int, targets: int, scrape: int) -> Iterator[Prometheus]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    jobs = [
        {
            "job_name": f"gpuslice-{target}",
            "metrics_path": f"/{target}",
            "honor_labels": True,
            "static_configs": [{"targets": [f"127.0.0.1:{pages}"]}],
            "relabel_configs": [{"target_label": "job", "replacement": "gpuslice"}],
        }
        for target in range(targets)
    ]
    config = {
        "global": {"scrape_interval": f"{scrape}s", "scrape_timeout": f"{scrape}s"},
        "rule_files": [str(folder / "*.yaml")],
        "scrape_configs": jobs,
    }
    (folder / "prometheus.json").write_text(json.dumps(config))
    command = ["prometheus", f"--config.file={folder}/prometheus.json", f"--storage.tsdb.path={folder}/data"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
    with subprocess.Popen(command) as process:  # noqa: S603 - the arguments are made above
        try:
            yield Prometheus(port, process)
        finally:
            process.terminate()


def _rules(evaluate: int) -> dict[str, str]:
    """Make the real files of rules, evaluated more often."""
    numbers = load_thresholds()
    often = replace(numbers.rules, interval=f"{evaluate}s", slow_interval=f"{evaluate}s")
    files = rule_files(replace(numbers, rules=often))
    return {Path(path).name: files[path] for path in (RECORDING, ALERTS)}


def _measure(nodes: int, asked: argparse.Namespace, folder: Path) -> None:
    files = _rules(asked.evaluate)
    read = {family.name for family in FAMILIES} & set(_SERIES.findall("".join(files.values())))
    pages = Nodes(template=template(read, clash=asked.clash), count=nodes, start=time.time())
    with served(pages) as port, _prometheus(folder, port, pages.targets, asked.scrape) as server:
        _watch(server, asked.warm / 2)
        _, scraping = _watch(server, asked.warm / 2)
        for name, text in files.items():
            (folder / name).write_text(text)
        server.reload()
        # The first evaluations make the series, which costs more than to go on with them.
        _watch(server, asked.evaluate * 2)
        taken, busy = _watch(server, asked.seconds)
        _report(nodes, server, taken, asked)
        # A group that is still busy when its time comes is left out.
        rounds = statistics.mean(len(each[""]) for each in taken.values())
        _say(f"  all groups once: {(busy - scraping) * asked.seconds / rounds:.2f} s of a processor")
        _say(f"  scraping: {scraping:.2f} of a processor")


def _watch(server: Prometheus, seconds: float) -> tuple[dict[str, dict[str, list[float]]], float]:
    """Collect for so long what each evaluation took: seconds by group, and in it by rule ("" for all).

    And say how many processors Prometheus kept busy.
    """
    used, start = server.used(), time.monotonic()
    taken: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    seen: dict[str, str] = {}
    while time.monotonic() < start + seconds:
        time.sleep(1)
        server.stop_if_too_large()
        try:
            groups = json.loads(server.get("/api/v1/rules"))["data"]["groups"]
        except (OSError, HTTPException, ValueError):
            continue
        for group in groups:
            if seen.get(group["name"]) != group["lastEvaluation"]:
                seen[group["name"]] = group["lastEvaluation"]
                _note(taken[group["name"]], group)
    return taken, (server.used() - used) / (time.monotonic() - start)


def _note(taken: dict[str, list[float]], group: dict[str, Any]) -> None:
    taken[""].append(group["evaluationTime"])
    for rule in group["rules"]:
        taken[rule["name"]].append(rule["evaluationTime"])
        if rule.get("lastError"):
            raise SystemExit(f"{rule['name']}: {rule['lastError']}")


def _report(
    nodes: int, server: Prometheus, taken: dict[str, dict[str, list[float]]], asked: argparse.Namespace
) -> None:
    ingested = server.metric("prometheus_tsdb_head_series")[""]
    made = server.metric("prometheus_rule_group_last_evaluation_samples")
    scraped = ingested - sum(made.values())
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"
    _say(f"{nodes} nodes, {nodes * GPUS} GPUs, {nodes * HOLDERS} holders ({load})")
    rate = scraped / asked.scrape
    _say(f"  {scraped:.0f} series scraped, {rate:.0f} samples/s; {sum(made.values()):.0f} series made")
    _say(f"  {server.resident() / 1e9:.2f} GB resident")
    _say(f"  {'group':<28}{'rules':>6}{'middle':>11}{'best':>11}{'series':>10}")
    for name, each in taken.items():
        count = next(value for labels, value in made.items() if f';{name}"' in labels)
        _say(f"  {name:<28}{len(each) - 1:6}{_times(each[''])}{count:10.0f}")
        for rule, seconds in each.items() if asked.each else ():
            if rule:
                _say(f"    {rule:<70}{_times(seconds)}")


def _times(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):9.3f} s{min(seconds):9.3f} s"


if __name__ == "__main__":
    main()
