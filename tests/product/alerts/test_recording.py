"""The recording rules: unit tests by promtool, their use, and a real Prometheus with nodes."""

import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from alerts.advice_records import advice_groups
from alerts.records import recording_groups
from alerts.table import record_table
from alerts.usage_records import usage_groups
from alerts.windows import Windows
from exporter.fleet import advice_queries, namespaces, nodes, sick_and_idle, targets
from exporter.fleet.usage.grouping import GROUPS as GROUPS_OF_USAGE
from exporter.fleet.usage.grouping import group_questions
from exporter.fleet.usage.queries import Piece, balances, known_gpus, of_holders
from tests.product.alerts.committed import quick_rules
from tests.together.end_to_end.programs import Prometheus, demo, get, prometheus, until
from tests.tools import tool

UNITS = Path(__file__).parent / "units"
ROOT = Path(__file__).parents[3]
WINDOWS = Windows(interval="1m", slow_interval="5m", idle_after="1h")
RULES = [
    rule for group in (*recording_groups(WINDOWS), *advice_groups(), *usage_groups()) for rule in group.rules
]
READ = re.compile(r"\b\w+:gpuslice_\w+:\w+")

SCENARIOS = {"shared": "t4-timeslicing", "mig": "a100-mig-mixed", "vendors": "hami-vendors"}
# One poll for the whole test, so that the nodes show what Prometheus has scraped.
ONCE = ("--poll-interval", "1h", "--stale-after", "2h")
CLUSTERS = ("single", "doubled")
Rows = list[dict[str, Any]]


@pytest.mark.parametrize("unit", sorted(UNITS.glob("records*.yaml")), ids=lambda path: path.stem)
def test_every_unit_file_of_records_passes(unit: Path) -> None:
    command = [tool("promtool"), "test", "rules", unit]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_every_record_is_used() -> None:
    """By a dashboard, an alert, the fleet, or another record."""
    readers = [*ROOT.glob("dashboards/json/*.json"), ROOT / "alerts/rules/gpuslice-alerts.yaml"]
    texts = [path.read_text() for path in readers] + [rule.expr for rule in RULES]
    fleet = (
        nodes.QUESTIONS,
        targets.QUESTIONS,
        namespaces.namespace_questions(3600),
        sick_and_idle.QUESTIONS,
        sick_and_idle.DETAILS,
        advice_queries.holder_questions(""),
        advice_queries.device_questions(),
        dict(enumerate(usage_queries())),
    )
    texts += [query for questions in fleet for query in questions.values()]

    assert {rule.name for rule in RULES} <= {name for text in texts for name in READ.findall(text)}


def usage_queries() -> Iterator[str]:
    """Yield the queries of usage by hours and by days."""
    pieces = Piece("hours", 0, 1), Piece("days", 0, 1)
    yield known_gpus(pieces)
    yield from of_holders(pieces[0]).values()
    for piece in pieces:
        yield balances(piece)
    for by in (*GROUPS_OF_USAGE, "label:team"):
        yield from group_questions(by, pieces).values()


def test_the_table_of_records_is_what_the_code_makes() -> None:
    assert record_table() in (ROOT / "docs/recording-rules.md").read_text()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scraped:
    """A Prometheus with the rules, and the snapshots of the nodes that it scraped."""

    server: Prometheus
    snapshots: list[dict[str, Any]]

    def values(self, level: str, record: str, cluster: str) -> dict[tuple[str, ...], float]:
        """Return a record of a cluster by node, by namespace, or summed up."""
        by = "" if level == "cluster" else level
        of = "namespace" if level == "namespace" else "node"
        return self.server.query(f'sum by ({by}) ({of}:{record}{{cluster="{cluster}"}})')

    def of_gpus(self, node: str, cluster: str) -> dict[str, Any]:
        """Return the records of a node's GPUs."""
        here = f'node="{node}", cluster="{cluster}"'
        by = {"offered_slices:sum": "resource", "held_slices:sum": "resource"}
        return {
            name: self.server.query(f"sum by ({by.get(name, '')}) (node:gpuslice_{name}{{{here}}})")
            for name in ("total_gpus:count", "up_gpus:sum", "total_bytes:sum", *by)
        }


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    """Scrape three nodes as two clusters: in one of them each by two replicas of Prometheus."""
    folder = tmp_path_factory.mktemp("recording")
    with ExitStack() as running, ThreadPoolExecutor() as at_once:
        demos = [demo(scenario, *ONCE) for scenario in SCENARIOS.values()]
        urls = dict(zip(SCENARIOS, at_once.map(running.enter_context, demos), strict=True))
        jobs = {
            f"{name}-{replica}": f"{url}/metrics"
            for replica in ("single", "doubled-a", "doubled-b")
            for name, url in urls.items()
        }
        labels = {"cluster": ".*-(single|doubled).*", "replica": ".*-doubled-(.)", "node_pool": "(.*?)-.*"}
        scrape = {
            "honor_labels": True,
            # On a busy machine a scrape may take longer than a second.
            "scrape_interval": "3s",
            "scrape_timeout": "3s",
            "relabel_configs": [
                {"source_labels": ["job"], "regex": regex, "target_label": label}
                for label, regex in labels.items()
            ],
        }
        server = running.enter_context(prometheus(folder, jobs, scrape=scrape, rules=[quick_rules(folder)]))
        # Some records are made of records of groups that are evaluated at another time.
        settled = (
            "min_over_time(sum by (cluster) (node:gpuslice_total_gpus:count)[6s:1s]) == 13 "
            "and sum by (cluster) (node:gpuslice_idle_holders:sum) > 0"
        )
        until(lambda: len(server.query(settled)) == len(CLUSTERS), "the records have settled")
        yield Scraped(
            server=server,
            snapshots=[json.loads(get(f"{url}/api/v1/snapshot")[1]) for url in urls.values()],
        )


def _nodes(scraped: Scraped) -> Iterator[tuple[str, Rows, Rows]]:
    """Yield each node with its GPUs whose driver is read, and the rows of containers on those."""
    for snapshot in scraped.snapshots:
        gpus = [gpu for gpu in snapshot["gpus"] if gpu["up"] is not None]
        uuids = {gpu["uuid"] for gpu in gpus}
        rows = [row for row in snapshot["containers"] if row["uuid"] in uuids]
        yield snapshot["node"]["node"], gpus, rows


def _grouped(scraped: Scraped, level: str) -> dict[tuple[str, ...], Rows]:
    """Return the rows of containers by node or namespace, or all together."""
    groups: dict[tuple[str, ...], Rows] = {}
    for node, _, rows in _nodes(scraped):
        if level == "node":
            groups[node,] = rows
        for row in rows if level != "node" else ():
            groups.setdefault((row["namespace"],) if level == "namespace" else (), []).append(row)
    return groups


def _known_sum(rows: Rows, field: str) -> float | None:
    values = [row[field] for row in rows if row[field] is not None]
    return sum(values) if values else None


def _held(rows: Rows, field: str) -> float | None:
    return _known_sum(rows, field) if any(row["slices"] for row in rows) else 0


def _idle(rows: Rows) -> int | None:
    if not any(row["slices"] for row in rows):
        return 0
    measured = [row for row in rows if row["slices"] and row["compute_used_ratio"] is not None]
    return sum(row["compute_used_ratio"] == 0 for row in measured) if measured else None


FIGURES = {
    "gpuslice_holders:sum": lambda rows: sum(bool(row["slices"]) for row in rows),
    "gpuslice_idle_holders:sum": _idle,
    "gpuslice_held_bytes:sum": lambda rows: _held(rows, "memory_entitled_bytes"),
    "gpuslice_used_bytes:sum": lambda rows: _known_sum(rows, "memory_used_bytes"),
    "gpuslice_held_gpus:sum": lambda rows: _held(rows, "compute_entitled_ratio"),
    "gpuslice_used_gpus:sum": lambda rows: _known_sum(rows, "compute_used_ratio"),
}


@pytest.mark.slow
@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("level", ["node", "namespace", "cluster"])
def test_records_are_the_sums_of_the_rows_of_nodes(scraped: Scraped, level: str, cluster: str) -> None:
    """Replicas count once; a value that is not known of any row is absent."""
    for record, figure in FIGURES.items():
        sums = {key: figure(rows) for key, rows in _grouped(scraped, level).items()}
        expected = {key: value for key, value in sums.items() if value is not None}

        # During a round of evaluation a record may be missing for a moment.
        until(
            lambda record=record, expected=expected: (
                scraped.values(level, record, cluster) == pytest.approx(expected)
            ),
            f"{record} by {level} of {cluster} is {expected}",
        )


@pytest.mark.slow
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_records_of_gpus_are_those_of_the_nodes(scraped: Scraped, cluster: str) -> None:
    """Devices of other vendors, which no driver reads, are not counted."""
    for node, gpus, _ in _nodes(scraped):
        expected = {
            "total_gpus:count": {(): len(gpus)},
            "up_gpus:sum": {(): len(gpus)},
            "total_bytes:sum": {(): sum(gpu["memory_total_bytes"] for gpu in gpus)},
            "offered_slices:sum": _by_resource([gpu["slices"] for gpu in gpus]),
            "held_slices:sum": _by_resource([gpu["slices_allocated"] for gpu in gpus]),
        }
        until(
            lambda node=node, expected=expected: scraped.of_gpus(node, cluster) == expected,
            f"the records of the GPUs of {node} are {expected}",
        )


def _by_resource(counts: Sequence[dict[str, int | None]]) -> dict[tuple[str], int]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update({resource: number or 0 for resource, number in count.items()})
    return {(resource,): number for resource, number in total.items()}


@pytest.mark.slow
def test_prometheus_evaluates_every_rule_without_an_error(scraped: Scraped) -> None:
    rules = [rule for group in scraped.server.api("rules")["groups"] for rule in group["rules"]]

    assert len(rules) == len(RULES)
    assert {rule["name"]: rule["lastError"] for rule in rules if rule.get("lastError")} == {}
