"""The recording rules: units of promtool, the names that they read, and a real Prometheus with nodes."""

import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from alerts.advice_records import advice_groups
from alerts.records import recording_groups
from alerts.table import record_table
from alerts.windows import Windows
from exporter.fleet import attention, nodes, queries, shares, targets
from exporter.metrics import FAMILIES, LEVEL_LABELS
from tests.alerts.committed import quick_rules
from tests.end_to_end.programs import Prometheus, demo, get, program, prometheus, until

UNITS = Path(__file__).parent / "units"
ROOT = Path(__file__).parents[2]
WINDOWS = Windows(interval="1m", slow_interval="5m", idle_after="1h")
GROUPS = (*recording_groups(WINDOWS), *advice_groups())
RULES = [rule for group in GROUPS for rule in group.rules]
SELECTED = re.compile(r"(?<![:\w])(gpuslice_\w+)(?:\{([^}]*)\})?")
READ = re.compile(r"\b\w+:gpuslice_\w+:\w+")
MATCHED = re.compile(r"(\w+)\s*[=!]")

SCENARIOS = {"shared": "t4-timeslicing", "mig": "a100-mig-mixed", "vendors": "hami-vendors"}
# One poll for all of the test, so that the nodes tell the same as Prometheus.
ONCE = ("--poll-interval", "1h", "--stale-after", "2h")
CLUSTERS = ("single", "doubled")


@pytest.mark.parametrize("unit", sorted(UNITS.glob("records*.yaml")), ids=lambda path: path.stem)
def test_the_records_are_what_the_units_say(unit: Path) -> None:
    """Evaluated by promtool on the series of a unit, the rules give what it expects."""
    done = subprocess.run(
        [program("promtool"), "test", "rules", unit], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_every_series_that_is_selected_is_exported() -> None:
    """Its name stands in the table of families, and so do the labels by which it is selected."""
    labels = {family.name: {*LEVEL_LABELS[family.level], *family.labels} for family in FAMILIES}
    selected = {found for rule in RULES for found in SELECTED.findall(rule.expr)}

    assert len(selected) > 15
    for name, matchers in selected:
        assert set(MATCHED.findall(matchers)) <= labels[name]


def test_every_record_that_is_read_is_made() -> None:
    """No rule stands on a record that is not there, and none is made twice."""
    made = Counter(rule.name for rule in RULES)
    read = {name for rule in RULES for name in READ.findall(rule.expr)}

    assert read
    assert read <= made.keys()
    assert made.most_common(1)[0][1] == 1


def test_every_record_is_used() -> None:
    """A dashboard, an alert or the fleet asks for it, or another record that is used."""
    readers = [*ROOT.glob("dashboards/json/*.json"), ROOT / "alerts/rules/gpuslice-alerts.yaml"]
    texts = [path.read_text() for path in readers] + [rule.expr for rule in RULES]
    fleet = (
        nodes.QUESTIONS,
        targets.QUESTIONS,
        shares.namespace_questions(3600),
        attention.QUESTIONS,
        attention.DETAILS,
        {"week": queries.week_question("")},
        queries.advice_questions(),
    )
    texts += [query for questions in fleet for query in questions.values()]

    assert {rule.name for rule in RULES} <= {name for text in texts for name in READ.findall(text)}


def test_the_page_of_the_records_is_that_of_the_code() -> None:
    """The table in docs/recording-rules.md is what the code makes."""
    assert record_table() in (ROOT / "docs/recording-rules.md").read_text()


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A Prometheus with the rules, and what the nodes say of themselves."""

    server: Prometheus
    snapshots: list[dict[str, Any]]

    def values(self, level: str, record: str, cluster: str) -> dict[tuple[str, ...], float]:
        """Give a record of a cluster by node, by namespace, or summed up."""
        by = "" if level == "cluster" else level
        of = "namespace" if level == "namespace" else "node"
        return self.server.query(f'sum by ({by}) ({of}:{record}{{cluster="{cluster}"}})')


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Known]:
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
        server = running.enter_context(
            prometheus(folder, jobs, scrape=_relabelled(), rules=[quick_rules(folder)])
        )
        # Records stand on records of groups that are evaluated at another time.
        settled = (
            "min_over_time(sum by (cluster) (node:gpuslice_total_gpus:count)[6s:1s]) == 13 "
            "and sum by (cluster) (node:gpuslice_idle_holders:sum) > 0"
        )
        until(lambda: len(server.query(settled)) == len(CLUSTERS), "the records have settled")
        yield Known(
            server=server,
            snapshots=[json.loads(get(f"{url}/api/v1/snapshot")[1]) for url in urls.values()],
        )


def _relabelled() -> dict[str, Any]:
    labels = {"cluster": ".*-(single|doubled).*", "replica": ".*-doubled-(.)", "node_pool": "(.*?)-.*"}
    return {
        "honor_labels": True,
        # On a busy machine a scrape may take longer than a second.
        "scrape_interval": "3s",
        "scrape_timeout": "3s",
        "relabel_configs": [
            {"source_labels": ["job"], "regex": regex, "target_label": label}
            for label, regex in labels.items()
        ],
    }


Rows = list[dict[str, Any]]


def _own(known: Known) -> list[tuple[str, Rows, Rows]]:
    """Give each node with its GPUs whose driver is asked, and the rows of containers on those."""
    found = []
    for snapshot in known.snapshots:
        gpus = [gpu for gpu in snapshot["gpus"] if gpu["up"] is not None]
        uuids = {gpu["uuid"] for gpu in gpus}
        rows = [row for row in snapshot["containers"] if row["uuid"] in uuids]
        found.append((snapshot["node"]["node"], gpus, rows))
    return found


def _by(known: Known, level: str) -> dict[tuple[str, ...], Rows]:
    """Sort the rows of containers by the node or namespace that they are of, or keep all together."""
    groups: dict[tuple[str, ...], Rows] = {}
    for node, _, rows in _own(known):
        if level == "node":
            groups[node,] = rows
        for row in rows if level != "node" else ():
            groups.setdefault((row["namespace"],) if level == "namespace" else (), []).append(row)
    return groups


def _known_sum(rows: Rows, field: str, *also: str) -> float | None:
    values = [row[field] for row in rows if all(row[each] is not None for each in (field, *also))]
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
def test_the_records_are_the_sums_of_what_the_nodes_say(known: Known, level: str, cluster: str) -> None:
    """By node, namespace and cluster, also of replicas; what is not known of any row is absent."""
    for record, figure in FIGURES.items():
        reckoned = {key: figure(rows) for key, rows in _by(known, level).items()}
        expected = {key: value for key, value in reckoned.items() if value is not None}

        # While a slow machine is at a round of evaluation a record may not be there for a moment.
        until(
            lambda record=record, expected=expected: (
                known.values(level, record, cluster) == pytest.approx(expected)
            ),
            f"{record} by {level} of {cluster} is {expected}",
        )


@pytest.mark.slow
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_the_records_of_gpus_are_those_of_the_nodes(known: Known, cluster: str) -> None:
    """GPUs, those that were read, memory and slices of each node; other makers' devices are not counted."""
    for node, gpus, _ in _own(known):
        expected = _of_gpus(gpus)
        until(
            lambda node=node, expected=expected: _recorded(known, node, cluster) == expected,
            f"the records of the GPUs of {node} are {expected}",
        )


def _of_gpus(gpus: Rows) -> dict[str, Any]:
    """Give what a node's GPUs add up to; slices are by resource."""
    counts: dict[str, Counter[str]] = {"slices": Counter(), "slices_allocated": Counter()}
    for gpu in gpus:
        for field, counter in counts.items():
            counter.update({resource: count or 0 for resource, count in gpu[field].items()})
    names = {"slices": "offered_slices", "slices_allocated": "held_slices"}
    return {
        "total_gpus:count": {(): len(gpus)},
        "up_gpus:sum": {(): len(gpus)},
        "total_bytes:sum": {(): sum(gpu["memory_total_bytes"] for gpu in gpus)},
        **{
            f"{names[field]}:sum": {(resource,): count for resource, count in counter.items()}
            for field, counter in counts.items()
        },
    }


def _recorded(known: Known, node: str, cluster: str) -> dict[str, Any]:
    here = f'node="{node}", cluster="{cluster}"'
    return {
        name: known.server.query(f"sum by ({by}) (node:gpuslice_{name}{{{here}}})")
        for name, by in (
            ("total_gpus:count", ""),
            ("up_gpus:sum", ""),
            ("total_bytes:sum", ""),
            ("offered_slices:sum", "resource"),
            ("held_slices:sum", "resource"),
        )
    }


@pytest.mark.slow
def test_no_rule_fails(known: Known) -> None:
    """Prometheus evaluated every rule without an error."""
    groups = known.server.api("rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]

    assert len(rules) == len(RULES)
    assert {rule["name"]: rule["lastError"] for rule in rules if rule.get("lastError")} == {}
