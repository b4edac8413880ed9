"""docs/recipes.md: the files of deploy/recipes are valid, and the queries have answers."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.product.deploy.schemas import validate
from tests.product.recipes.scene import CLUSTERS, RECIPES
from tests.together.end_to_end.programs import Prometheus

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/recipes.md").read_text()
FILES = {path.name: yaml.safe_load(path.read_text()) for path in sorted(RECIPES.iterdir())}
LONGEST = 250


def queries() -> Iterator[str]:
    """Yield the queries of the page; a comment is before each."""
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
    """It is short, and does not mix clusters with nodes of equal names."""
    found = server.api("query", query=query)["result"]

    assert len(query) <= LONGEST
    assert {each["metric"]["cluster"] for each in found} == set(CLUSTERS)


@pytest.mark.slow
@pytest.mark.parametrize("rule", list(_rules()), ids=lambda rule: rule["record"])
def test_a_rule_is_short_and_has_series(rule: dict[str, Any], server: Prometheus) -> None:
    found = server.api("query", query=rule["record"])["result"]

    assert len(" ".join(rule["expr"].split())) <= LONGEST
    assert {each["metric"]["cluster"] for each in found} == set(CLUSTERS)


def test_the_page_links_all_files_and_no_others() -> None:
    assert set(re.findall(r"\]\(\.\./deploy/recipes/([^)]+)\)", PAGE)) == FILES.keys()


def test_records_of_the_page_are_those_of_the_files() -> None:
    named = set(re.findall(r"\b(?:pod|workload|replicaset):\w+:\w+", PAGE))

    assert named
    assert named <= {rule["record"] for rule in _rules()}


@pytest.mark.tools
def test_objects_follow_their_schemas() -> None:
    """The schemas are those of Kubernetes, the Prometheus Operator and KEDA."""
    objects = [content for content in FILES.values() if "kind" in content]

    assert objects
    validate(objects)
