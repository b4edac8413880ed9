"""The limits of the systems in which rules and series are stored."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from exporter.metrics import FAMILIES, LEVEL_LABELS
from tests.core.commands.program import output_of
from tests.product.alerts.committed import FILES, ROOT, committed_rules
from tests.product.dashboards.expressions import parts
from tests.product.dashboards.grafana import panels
from tests.product.dashboards.records import RECORDS, series_labels

RULES = committed_rules()
PAGES = sorted((ROOT / "tests/core/golden").glob("*/*.prom"))
BOARDS = [json.loads(path.read_text()) for path in sorted((ROOT / "dashboards/json").glob("*.json"))]
QUERIES = [target["expr"] for board in BOARDS for panel in panels(board) for target in panel["targets"]]
EXPRESSIONS = [*RULES.records.values(), *(alert["expr"] for alert in RULES.alerts.values()), *QUERIES]
READ = re.compile(r"\b\w+:gpuslice_\w+:\w+")
OBJECTS = [*ROOT.glob("alerts/*/gpuslice-rules.yaml")]
"""The rules as objects of operators."""

RULES_IN_GROUP, GROUPS = 20, 70
"""Mimir's default limits, and those of services that are built on it."""
LABELS = 30
"""Mimir's and VictoriaMetrics' default limit of a series, including its name."""
OF_PLACE = 8
"""Labels that a place adds: job, instance, cluster, a replica, the tenant, and some of its own."""
CHAIN = 3
"""vmalert sees the results of a group when the group has ended: each level is a round later."""
OBJECT_BYTES = 1_000_000
"""Operators write rules into ConfigMaps, which hold 1 MiB."""


def test_no_group_is_large() -> None:
    """Hosted rulers refuse groups of more than 20 rules, and more than 70 groups."""
    assert len(RULES.groups) > 5
    assert max(len(group["rules"]) for group in RULES.groups) <= RULES_IN_GROUP
    assert len(RULES.groups) <= GROUPS


def test_there_are_few_records() -> None:
    """Each costs all places, in every round."""
    assert len(RULES.records) <= 75


def test_chains_of_records_are_short() -> None:
    """A record stands on records that stand on records of series, at most."""
    reads = {name: set(READ.findall(expr)) - {name} for name, expr in RULES.records.items()}

    def depth(name: str) -> int:
        return 1 + max(map(depth, reads[name]), default=0)

    assert max(map(depth, reads)) == CHAIN


@pytest.mark.parametrize("path", [*FILES, *OBJECTS], ids=lambda path: str(path.relative_to(ROOT)))
def test_files_of_rules_are_small(path: Path) -> None:
    """As an object of Kubernetes each fits."""
    assert 5_000 < path.stat().st_size < OBJECT_BYTES


def test_the_objects_of_operators_have_the_same_groups() -> None:
    """No place has other rules than those that are tested; some have defaults written out."""
    assert len(OBJECTS) == 3
    for path in OBJECTS:
        groups = yaml.safe_load(path.read_text())["spec"]["groups"]
        for group in groups:
            group["rules"] = [{key: value for key, value in rule.items() if value} for rule in group["rules"]]
        assert groups == RULES.groups, path


def test_series_have_few_labels() -> None:
    """With those that a database adds they are fewer than 30, also on golden pages."""
    known = [{*LEVEL_LABELS[family.level], *family.labels} for family in FAMILIES]
    seen = [set(sample.labels) for path in PAGES for sample in _samples(path)]

    assert len(seen) > 10_000
    assert max(map(len, [*known, *seen, *map(series_labels, RECORDS)])) + 1 + OF_PLACE < LABELS


@pytest.mark.parametrize("dcgm", ["all", "legacy"])
def test_series_have_a_type(dcgm: str) -> None:
    """Google Managed Prometheus charges a series of unknown type twice."""
    options = ("--format=prometheus", "--metric-set=full", f"--dcgm-names={dcgm}")
    families = list(text_string_to_metric_families(output_of("snapshot", "--scenario=showcase", *options)))

    assert len(families) > 100
    assert [family.name for family in families if family.type == "unknown"] == []


def test_queries_name_their_series() -> None:
    """Google Managed Prometheus takes no regular expression for the name of a series."""
    selectors = [selector for expr in EXPRESSIONS for selector in parts(expr).selectors]

    assert len(selectors) > len(EXPRESSIONS) > 200
    for selector in selectors:
        assert selector.name
        assert "__name__" not in {label for label, _, _ in selector.matchers}


def _samples(path: Path) -> Iterator[Sample]:
    for family in text_string_to_metric_families(path.read_text()):
        yield from family.samples
