"""docs/recipes.md names the files of deploy/recipes, which are valid, and its queries have answers."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.schemas import validate
from tests.end_to_end.programs import Prometheus
from tests.recipes.scene import CLUSTERS, RECIPES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/recipes.md").read_text()
FILES = {path.name: yaml.safe_load(path.read_text()) for path in sorted(RECIPES.iterdir())}
LONGEST = 250


def queries() -> Iterator[str]:
    """Yield the queries of the page; a comment stands before each."""
    for block in re.findall(r"```promql\n(.*?)```", PAGE, re.DOTALL):
        for query in re.split(r"^#.*\n", block, flags=re.MULTILINE):
            if query.strip():
                yield " ".join(query.split())


def _rules() -> Iterator[dict[str, Any]]:
    for content in FILES.values():
        if content.get("kind") == "PrometheusRule":
            for group in content["spec"]["groups"]:
                yield from group["rules"]


@pytest.mark.slow
@pytest.mark.parametrize("query", list(queries()))
def test_a_query_has_an_answer_for_each_cluster(query: str, server: Prometheus) -> None:
    """It is short, and keeps clusters with nodes of equal names apart."""
    found = server.api("query", query=query)["result"]

    assert len(query) <= LONGEST
    assert {each["metric"]["cluster"] for each in found} == set(CLUSTERS)


@pytest.mark.slow
@pytest.mark.parametrize("rule", list(_rules()), ids=lambda rule: rule["record"])
def test_a_rule_is_short_and_has_series(rule: dict[str, Any], server: Prometheus) -> None:
    """A rule has a value for each cluster here."""
    found = server.api("query", query=rule["record"])["result"]

    assert len(" ".join(rule["expr"].split())) <= LONGEST
    assert {each["metric"]["cluster"] for each in found} == set(CLUSTERS)


def test_the_page_names_all_files_and_no_others() -> None:
    """Each file is linked."""
    assert set(re.findall(r"\]\(\.\./deploy/recipes/([^)]+)\)", PAGE)) == FILES.keys()


def test_the_page_names_records_that_there_are() -> None:
    """Records of pods and workloads are those of the files."""
    named = set(re.findall(r"\b(?:pod|workload|replicaset):\w+:\w+", PAGE))

    assert named
    assert named <= {rule["record"] for rule in _rules()}


@pytest.mark.slow
def test_objects_are_valid() -> None:
    """Objects follow the schemas of Kubernetes, the Prometheus Operator and KEDA, strictly."""
    objects = [content for content in FILES.values() if "kind" in content]

    assert objects
    validate(objects)
